"""Provide the tool `edit_file`, which replaces exact text in a file. Either all edits are made or none."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

import msgspec
from anyio import to_thread
from msgspec import Meta, structs

from ..core.engine import ToolAnswer
from ..core.gate import InvalidCall, PreparedCall
from ..core.tool_call import Arguments, build_schema, parse_arguments
from ..values.action import Action
from ..values.event import ToolUse
from ..values.plain_text import join_some
from ..workspace.git.repository import locate_checkout
from .checkout_files import open_checkout
from .file_change import (
    FindGuard,
    PendingFileChange,
    find_repository_guard,
    hash_content,
    read_whole_file,
    recover_change,
)
from .file_listing import holds_secrets, list_files
from .read_write_files import PathOfFile, encode_utf8

BOM = "\ufeff"
MOST_SUGGESTED = 3
SEARCHED = 5000
"""The maximum number of lines that are searched for the most similar line if `old` is not found."""


class EditArguments(Arguments, frozen=True, kw_only=True):
    """The arguments of edit_file."""

    path: PathOfFile
    old: Annotated[str, Meta(description="Exact text, without line numbers.")]
    new: str
    replace_all: bool = False


class Edit(Arguments, frozen=True, kw_only=True):
    """One replacement."""

    old_text: str
    new_text: str
    replace_all: bool = False


class SeveralEdits(Arguments, frozen=True, kw_only=True):
    """Alternative arguments of edit_file: several edits, applied in order, each to the result of the previous one."""

    path: PathOfFile
    edits: tuple[Edit, ...]


OTHER_NAMES = {"old_text": "old", "new_text": "new", "old_string": "old", "new_string": "new"}
"""Alternative names for arguments, mapped to the current names.

The alternatives are names from earlier versions, and names that models use because other programs' tools have them."""


class EditFile:
    """`edit_file`: makes one or more exact replacements in a file, either all of them or none.

    The schema shows one replacement, because small models write flat arguments more reliably. A call
    can also make several replacements.
    """

    name = "edit_file"
    description = "Replace text in a file. old must occur exactly once, unless replace_all is set."
    parameters = build_schema(EditArguments)
    is_parallel = False
    timeout = 60.0

    def __init__(self, directory: Path, *, find_guard: FindGuard = find_repository_guard) -> None:
        self._directory = directory
        self._find_guard = find_guard
        self._place = locate_checkout(directory)

    async def prepare(self, call: ToolUse) -> PreparedCall:
        asked = _parse_edits(call)
        if absent := await to_thread.run_sync(self._find_absent, asked.path):
            raise InvalidCall(f"{absent} does not exist; {await self._suggest_file(absent)}")
        return await to_thread.run_sync(self._prepare_edits, asked.path, asked.edits)

    async def recover(self, began: Action) -> ToolAnswer | None:
        return await recover_change(self._directory, began, _describe_edits)

    def _find_absent(self, path: str) -> str:
        """Return the path of the file if there is no such file, otherwise an empty string."""
        with open_checkout(self._directory) as checkout:
            found = checkout.locate(path).as_file()
        return found.path if found.kind == "absent" else ""

    async def _suggest_file(self, absent: str) -> str:
        """Return what would work instead: probably a file of the same name in another folder is meant."""
        name = PurePosixPath(absent).name
        paths = await list_files(self._directory, ".", place=self._place, hidden=holds_secrets)
        if same := [path for path in paths if PurePosixPath(path).name == name]:
            return f"did you mean {join_some(same, MOST_SUGGESTED)}?"
        return "use write_file to create it."

    def _prepare_edits(self, path: str, edits: tuple[Edit, ...]) -> PreparedCall:
        with open_checkout(self._directory) as checkout:
            found = checkout.locate(path).as_file()
            if found.kind == "absent":
                raise InvalidCall(f"{found.path} does not exist; use write_file to create it.")
            there = read_whole_file(checkout, found.path)
        try:
            before = there.decode()
        except UnicodeDecodeError as error:
            raise InvalidCall(
                f"{found.path} is not UTF-8 text and cannot be edited; use a command to change it."
            ) from error
        after = apply_edits(before, edits, found.path)
        change = PendingFileChange(
            directory=self._directory,
            path=found.path,
            before=before,
            before_hash=hash_content(there),
            after=encode_utf8(after, "new"),
            guard=self._find_guard(self._directory, found.path),
        )
        return change.prepare_call(
            {"path": found.path, "edits": [msgspec.to_builtins(edit) for edit in edits]}, _describe_edits
        )


def _parse_edits(call: ToolUse) -> SeveralEdits:
    """Return the edits of a call.

    Raise InvalidCall if they are incomplete, or if the call has `edits` as well as `old` or `new`.
    """
    given = {OTHER_NAMES.get(name, name): value for name, value in call.arguments.items() if value is not None}
    if given.get("edits"):
        if "old" in given or "new" in given:
            raise InvalidCall("edit_file takes either `edits` or `old` with `new`, not both.")
        given.pop("replace_all", None)
        return parse_arguments(structs.replace(call, arguments=given), SeveralEdits)
    given.pop("edits", None)
    one = parse_arguments(structs.replace(call, arguments=given), EditArguments)
    return SeveralEdits(path=one.path, edits=(Edit(old_text=one.old, new_text=one.new, replace_all=one.replace_all),))


def _describe_edits(path: str, arguments: Mapping[str, Any], is_new: bool) -> str:
    count = len(arguments["edits"])
    return f"Edited {path}: {count} {'edit' if count == 1 else 'edits'}."


def apply_edits(text: str, edits: Sequence[Edit], path: str) -> str:
    """Return the text with all edits applied. The byte order mark and CRLF line endings are preserved.

    Raise InvalidCall, with `path` in the message, if an edit cannot be applied.
    """
    mark, text = (BOM, text[1:]) if text.startswith(BOM) else ("", text)
    for number, edit in enumerate(edits, 1):
        which = f"in edit {number} of {len(edits)}, " if len(edits) > 1 else ""
        text = _apply_edit(text, edit, path, which)
    return mark + text


def _apply_edit(text: str, edit: Edit, path: str, which: str) -> str:
    if not edit.old_text:
        raise InvalidCall(f"{path} is unchanged: {which}`old` is empty; give the text to replace.")
    old, new = edit.old_text, edit.new_text
    if "\r\n" in text and (text.count("\n") == text.count("\r\n") or old not in text):
        old, new = _convert_to_crlf(old), _convert_to_crlf(new)
    if old == new:
        raise InvalidCall(f"{path} is unchanged: {which}`old` and `new` are the same.")
    count = text.count(old)
    if count == 0:
        raise InvalidCall(
            f"{path} is unchanged: {which}`old` was not found.{_describe_nearest_line(text, edit.old_text)}"
        )
    if count > 1 and not edit.replace_all:
        raise InvalidCall(
            f"{path} is unchanged: {which}`old` occurs {count} times (lines "
            f"{_find_line_numbers(text, old)}); include more "
            "surrounding lines, or set replace_all."
        )
    return text.replace(old, new)


def _convert_to_crlf(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def _find_line_numbers(text: str, old: str) -> str:
    found: list[str] = []
    at = text.find(old)
    while at >= 0 and len(found) < 10:
        found.append(str(text.count("\n", 0, at) + 1))
        at = text.find(old, at + len(old))
    return ", ".join(found) + (", …" if at >= 0 else "")


def _describe_nearest_line(text: str, old: str) -> str:
    """Describe the line in `text` that is most similar to the first line of `old` that is not blank."""
    wanted = next((line.strip() for line in old.split("\n") if line.strip()), "")[:500]
    numbered = {line.strip()[:500]: number for number, line in reversed([*enumerate(text.split("\n")[:SEARCHED], 1)])}
    near = difflib.get_close_matches(wanted, numbered, n=1, cutoff=0.5)
    if not near:
        return " Read the file again."
    if near[0] == wanted:
        return (
            f" The first line of `old` is line {numbered[near[0]]}, but later lines or the white space differ. "
            "Read the file again."
        )
    return f" The most similar line is line {numbered[near[0]]}: {near[0]}"
