"""Provide the tool `update_memory`, which lets an agent change its memory file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from anyio import to_thread
from msgspec import Meta

from ..core.engine import ToolAnswer
from ..core.gate import InvalidCall, PreparedCall
from ..core.tool_arguments import Arguments, build_schema, canonical_arguments, parse_arguments
from ..values.action import Action
from ..values.event import ToolUse
from ..values.tool_table import UPDATE_MEMORY
from .checkout_files import open_checkout
from .file_change import ABSENT, PendingFileChange, hash_content, read_whole_file, recover_change
from .read_write_files import encode_utf8

MOST_CHARACTERS = 16_000
"""The maximum length of a memory, in characters."""


class UpdateMemoryArguments(Arguments, frozen=True, kw_only=True):
    """The arguments of update_memory."""

    new: Annotated[str, Meta(description="Text to add, or the replacement for `old`.")]
    old: Annotated[str, Meta(description="Text in your memory to replace with `new`.")] = ""


class UpdateMemory:
    """`update_memory`: adds text to one agent's memory, or replaces text in it."""

    name = UPDATE_MEMORY
    description = "Add lines to your memory, or replace text in it. Keep it short; it is for your later runs."
    parameters = build_schema(UpdateMemoryArguments)
    is_parallel = False
    timeout = 60.0

    def __init__(self, directory: Path, path: str) -> None:
        self._directory = directory
        self._path = path

    async def prepare(self, call: ToolUse) -> PreparedCall:
        asked = parse_arguments(call, UpdateMemoryArguments)
        return await to_thread.run_sync(self._prepare_change, asked)

    async def recover(self, began: Action) -> ToolAnswer | None:
        return await recover_change(self._directory, began, _describe_change)

    def _prepare_change(self, asked: UpdateMemoryArguments) -> PreparedCall:
        with open_checkout(self._directory) as checkout:
            found = checkout.locate(self._path).as_file()
            there = b"" if found.kind == "absent" else read_whole_file(checkout, found.path)
        before = there.decode(errors="replace")
        after = amend_text(before, asked.old, asked.new)
        if len(after) > MOST_CHARACTERS and len(after) > len(before):
            raise InvalidCall(
                f"Your memory would be {len(after):,} characters long, but the limit is {MOST_CHARACTERS:,}; shorten "
                "the new text, or replace text that is already in your memory."
            )
        change = PendingFileChange(
            directory=self._directory,
            path=found.path,
            before=None if found.kind == "absent" else before,
            before_hash=ABSENT if found.kind == "absent" else hash_content(there),
            after=encode_utf8(after, "new"),
        )
        return change.prepare_call(canonical_arguments(asked), _describe_change)


def amend_text(text: str, old: str, new: str) -> str:
    """Return the text with `old` replaced by `new`; if `old` is empty, with `new` added at the end.

    Raise InvalidCall if `old` does not occur exactly once, or if nothing would change.
    """
    if not old:
        if not new.strip():
            raise InvalidCall("`new` is empty; give the text to add to your memory.")
        return f"{text.rstrip()}\n{new.strip()}\n".lstrip("\n")
    if (count := text.count(old)) != 1:
        raise InvalidCall(f"`old` occurs {count} times in your memory; give text that occurs once.")
    if old == new:
        raise InvalidCall("`old` and `new` are the same; nothing was changed.")
    return text.replace(old, new)


def _describe_change(path: str, arguments: Mapping[str, Any], is_new: bool) -> str:
    return "Noted."
