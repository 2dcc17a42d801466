"""Reading one settings file. Whatever it holds, there are findings and never an exception."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs

from ..values.diagnostic import Diagnostic
from ..values.located_yaml import (
    MAX_DEPTH,
    ListNode,
    LocatedNode,
    MalformedText,
    MappingNode,
    NumberTooLarge,
    parse_scalar,
    parse_yaml_mapping,
)
from .settings_document import SettingsDocument
from .settings_field import FileDiagnostics, SettingValue
from .settings_keys import Side, read_document, read_mcp_servers

MOST_BYTES = 1024 * 1024

_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_REASONS = {
    errno.ELOOP: "is a symbolic link that leads back to itself; a regular file would be right",
    errno.ENOENT: "links to something that does not exist; a regular file would be right",
    errno.EACCES: "may not be read by this user; change its permissions",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsFileContent:
    """What came of one file; `numbers` has the line of each key. A file with an error says nothing."""

    path: str
    document: SettingsDocument
    diagnostics: tuple[Diagnostic, ...]
    line_numbers: dict[str, int]
    is_there: bool

    @property
    def paths(self) -> tuple[str, ...]:
        """The file, if there is one."""
        return (self.path,) if self.is_there else ()

    @property
    def lines(self) -> dict[str, str]:
        """The place of each key."""
        return {key: f"{self.path}:{number}" for key, number in self.line_numbers.items()}


class Unreadable(Exception):
    """The file cannot be read; the message continues a sentence that begins with its path."""


def read_settings_file(path: Path, *, path_shown: str, side: Side, root: Path | None = None) -> SettingsFileContent:
    """What the file at `path` says, which may not lead out of `root`; JSON holds MCP servers and nothing else."""
    page = FileDiagnostics(path=path_shown, foreign=path.suffix == ".json")
    is_there = os.path.lexists(path)
    found = SettingsDocument()
    if is_there:
        try:
            found = _parse_document(page, decode_text(read_regular_file(path, root)), side)
        except Unreadable as error:
            page.add_diagnostic("error", str(error))
        except MalformedText as error:
            page.add_diagnostic("error", str(error), line=error.line, key=error.key)
    return _build_content(page, found, is_there=is_there)


def parse_settings_text(text: str, *, path_shown: str) -> SettingsFileContent:
    """What a person's file would say if `text` stood in it."""
    page = FileDiagnostics(path=path_shown)
    found = SettingsDocument()
    try:
        found = _parse_document(page, text, "user")
    except MalformedText as error:
        page.add_diagnostic("error", str(error), line=error.line, key=error.key)
    return _build_content(page, found)


def _build_content(page: FileDiagnostics, found: SettingsDocument, *, is_there: bool = True) -> SettingsFileContent:
    is_broken = any(finding.severity == "error" for finding in page.diagnostics)
    diagnostics = sorted(page.diagnostics, key=lambda finding: finding.line or 0)
    if page.foreign:
        # Other programs live by this file too; that it is of no use to us stops nobody.
        diagnostics = [structs.replace(finding, severity="warning") for finding in diagnostics]
    return SettingsFileContent(
        path=page.path,
        document=SettingsDocument() if is_broken else found,
        diagnostics=tuple(diagnostics),
        line_numbers=page.lines,
        is_there=is_there,
    )


def _parse_document(page: FileDiagnostics, text: str, side: Side) -> SettingsDocument:
    if not page.foreign:
        return read_document(SettingValue(page=page, key="", written=parse_yaml_mapping(text)), side)
    top = SettingValue(page=page, key="", written=compose_json(text))
    slots = top.read_fields(("mcpServers",))
    return (
        SettingsDocument(mcp_servers=read_mcp_servers(slots["mcpServers"], side))
        if "mcpServers" in slots
        else SettingsDocument()
    )


def read_regular_file(path: Path, root: Path | None) -> bytes:
    """The bytes of a regular file that is inside `root` after all links are followed; no more than allowed, and one."""
    try:
        real = path.resolve(strict=True)
        if root is not None and not real.is_relative_to(root.resolve()):
            raise Unreadable("leads out of the repository, where nothing is read; a copy inside would be right")
        descriptor = os.open(real, _FLAGS)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise Unreadable("is not a regular file; a regular file would be right")
            return file.read(MOST_BYTES + 1)
    except RuntimeError as error:  # how pathlib tells a loop of links before Python 3.13
        raise Unreadable(_REASONS[errno.ELOOP]) from error
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, f"cannot be read: {error.strerror or error}")
        raise Unreadable(reason) from error


def decode_text(data: bytes) -> str:
    """`data` as text with lines ended by `\\n`, refused where it is too long or no text."""
    if len(data) > MOST_BYTES:
        raise Unreadable("has more than 1 MiB; a settings file is at most that long")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(10, 0, error.start) + 1
        raise Unreadable(f"is not UTF-8: byte 0x{data[error.start]:02x} on line {line}; save it as UTF-8") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


_STRING = re.compile(r'"(?:[^"\\]|\\.)*"(\s*:)?')
_NO_TEXT = re.compile("[\0\ud800-\udfff]")


def compose_json(text: str) -> MappingNode:
    """The object that `text` is. Raises Malformed."""
    try:
        found = json.loads(text, object_pairs_hook=_Pairs, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise MalformedText(
            f"this is not valid JSON: {error.msg[:1].lower()}{error.msg[1:]}", line=error.lineno
        ) from error
    except (RecursionError, ValueError) as error:
        raise MalformedText("this is not valid JSON; an object with mcpServers would be right", line=1) from error
    if not isinstance(found, _Pairs):
        raise MalformedText("this is no JSON object; one with mcpServers would be right", line=1)
    fields = _locate_value(found, 1, _iter_key_lines(text), 0)
    assert isinstance(fields, MappingNode)
    return fields


class _Pairs(list[tuple[str, object]]):
    """An object's keys and values in the order in which they are written."""


def _refuse_constant(word: str) -> object:
    raise ValueError(word)


def _iter_key_lines(text: str) -> Iterator[int]:
    """The line of every key, in the order in which they are written."""
    line, place = 1, 0
    for match in _STRING.finditer(text):
        if match[1]:
            line += text.count("\n", place, match.start())
            place = match.start()
            yield line


def _locate_value(value: object, line: int, lines: Iterator[int], depth: int) -> LocatedNode:
    if depth > MAX_DEPTH:
        raise MalformedText(f"is nested more than {MAX_DEPTH} deep; a flatter value would be right", line=line)
    if isinstance(value, _Pairs):
        fields: dict[str, LocatedNode] = {}
        for key, inner in value:
            at = next(lines)
            if key in fields:
                raise MalformedText(
                    f"stands twice, here and on line {fields[key].line}; once would be right", line=at, key=key
                )
            fields[key] = _locate_value(inner, at, lines, depth + 1)
        return MappingNode(line=line, fields=fields)
    if isinstance(value, list):
        return ListNode(line=line, items=tuple(_locate_value(item, line, lines, depth + 1) for item in value))
    if isinstance(value, str):
        if _NO_TEXT.search(value):
            raise MalformedText("has a character that is no text; text without it would be right", line=line)
        return parse_scalar(value, line=line, is_plain=False)
    try:
        return parse_scalar(json.dumps(value), line=line, is_plain=True)
    except NumberTooLarge as error:
        raise MalformedText(f"{error} is too large a number; at most 18 digits would be right", line=line) from error
