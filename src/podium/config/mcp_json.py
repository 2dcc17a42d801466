"""The JSON of `.mcp.json` with line numbers, in the shape in which YAML is read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from ..values.located_yaml import (
    MAX_DEPTH,
    ListNode,
    LocatedNode,
    MalformedText,
    MappingNode,
    NumberTooLarge,
    parse_scalar,
)

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
