"""Read one settings file. Errors become diagnostics; reading never raises, whatever the file contains."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from msgspec import structs

from ..system.whole_file import UnreadableFile, read_text_file
from ..values.errors import Diagnostic
from ..values.field_reader import FieldReader, ParseContext
from ..values.located_yaml import (
    MAX_DEPTH,
    ListNode,
    LocatedNode,
    MalformedText,
    MappingNode,
    NumberTooLarge,
    parse_scalar,
)
from ..values.struct_reader import read_values
from ..values.yaml_parser import parse_yaml_mapping
from .settings_document import SettingsDocument, make_document
from .settings_keys import KEYS, read_document


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsFileContent:
    """The result of reading one file. The document is empty if the file has an error."""

    path: str
    document: SettingsDocument
    diagnostics: tuple[Diagnostic, ...]
    line_numbers: dict[str, int]
    is_there: bool

    @property
    def paths(self) -> tuple[str, ...]:
        """A tuple with the path of the file, or an empty tuple if the file does not exist."""
        return (self.path,) if self.is_there else ()

    @property
    def lines(self) -> dict[str, str]:
        """The location of each key, as `PATH:LINE`."""
        return {key: f"{self.path}:{number}" for key, number in self.line_numbers.items()}


def read_settings_file(path: Path, *, path_shown: str, is_yours: bool, root: Path | None = None) -> SettingsFileContent:
    """Read the file at `path`, which must be inside `root` if given. From a JSON file, only MCP servers are read.

    `is_yours` says that the file is the user's own, and not a repository's.
    """
    foreign = path.suffix == ".json"
    context = ParseContext(
        file=path, display_path=path_shown, foreign=foreign, ignores_unknown_keys=foreign, is_yours=is_yours
    )
    is_there = os.path.lexists(path) and (is_yours or not _is_placeholder(path))
    found = SettingsDocument()
    if is_there:
        try:
            found = _parse_document(context, read_text_file(path, root=root))
        except UnreadableFile as error:
            context.add_diagnostic("error", str(error))
        except MalformedText as error:
            context.add_diagnostic("error", str(error), line=error.line, key=error.key)
    return _build_content(context, found, is_there=is_there)


def _is_placeholder(path: Path) -> bool:
    """Return whether `path` is an empty folder.

    The sandbox creates such a folder as a placeholder wherever commands must not create a file.
    """
    try:
        return not path.is_symlink() and path.is_dir() and not any(path.iterdir())
    except OSError:
        return False


def parse_settings_text(text: str, *, path_shown: str) -> SettingsFileContent:
    """Parse `text` as the content of a user's settings file."""
    context = ParseContext(file=Path(path_shown), display_path=path_shown, is_yours=True)
    found = SettingsDocument()
    try:
        found = _parse_document(context, text)
    except MalformedText as error:
        context.add_diagnostic("error", str(error), line=error.line, key=error.key)
    return _build_content(context, found)


def _build_content(context: ParseContext, found: SettingsDocument, *, is_there: bool = True) -> SettingsFileContent:
    diagnostics = sorted(context.diagnostics, key=lambda finding: finding.line or 0)
    if context.foreign:
        # Other programs also use this file, so its errors must not stop Podium.
        diagnostics = [structs.replace(finding, severity="warning") for finding in diagnostics]
    return SettingsFileContent(
        path=context.display_path,
        document=SettingsDocument() if context.has_error else found,
        diagnostics=tuple(diagnostics),
        line_numbers=context.lines,
        is_there=is_there,
    )


def _parse_document(context: ParseContext, text: str) -> SettingsDocument:
    if not context.foreign:
        return read_document(FieldReader(context=context, node=parse_yaml_mapping(text)))
    top = FieldReader(context=context, node=_compose_json(text))
    return make_document(**read_values(top, {"mcpServers": KEYS["mcpServers"]}))


_STRING = re.compile(r'"(?:[^"\\]|\\.)*"(\s*:)?')
_NO_TEXT = re.compile("[\0\ud800-\udfff]")


def _compose_json(text: str) -> MappingNode:
    """Parse `text` as a JSON object. Raise MalformedText if that fails."""
    try:
        found = json.loads(text, object_pairs_hook=_Pairs, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise MalformedText(
            f"this is not valid JSON: {error.msg[:1].lower()}{error.msg[1:]}", line=error.lineno
        ) from error
    except RecursionError as error:
        raise MalformedText("this JSON is nested too deeply; use a flatter structure", line=1) from error
    except ValueError as error:
        raise MalformedText("this JSON contains a number that is not supported, such as NaN", line=1) from error
    if not isinstance(found, _Pairs):
        raise MalformedText("this is not a JSON object; expected an object with mcpServers", line=1)
    fields = _locate_value(found, 1, _iter_key_lines(text), 0)
    assert isinstance(fields, MappingNode)
    return fields


class _Pairs(list[tuple[str, object]]):
    """The keys and values of a JSON object, in file order."""


def _refuse_constant(word: str) -> object:
    raise ValueError(word)


def _iter_key_lines(text: str) -> Iterator[int]:
    """Yield the line number of each key, in file order."""
    line, place = 1, 0
    for match in _STRING.finditer(text):
        if match[1]:
            line += text.count("\n", place, match.start())
            place = match.start()
            yield line


def _locate_value(value: object, line: int, lines: Iterator[int], depth: int) -> LocatedNode:
    if depth > MAX_DEPTH:
        raise MalformedText(f"this value is nested more than {MAX_DEPTH} levels deep; use a flatter one", line=line)
    if isinstance(value, _Pairs):
        fields: dict[str, LocatedNode] = {}
        for key, inner in value:
            at = next(lines)
            if key in fields:
                raise MalformedText(f"duplicate key, also on line {fields[key].line}; keep only one", line=at, key=key)
            fields[key] = _locate_value(inner, at, lines, depth + 1)
        return MappingNode(line=line, fields=fields)
    if isinstance(value, list):
        return ListNode(line=line, items=tuple(_locate_value(item, line, lines, depth + 1) for item in value))
    if isinstance(value, str):
        if _NO_TEXT.search(value):
            raise MalformedText("this text contains an invalid character; remove it", line=line)
        return parse_scalar(value, line=line, is_plain=False)
    try:
        return parse_scalar(json.dumps(value), line=line, is_plain=True)
    except NumberTooLarge as error:
        raise MalformedText(f"the number {error} is too large; use at most 18 digits", line=line) from error
