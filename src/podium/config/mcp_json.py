"""The JSON of `.mcp.json` with line numbers, in the shape in which YAML is read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from ..values.located_yaml import DEEPEST, Fields, Items, Malformed, TooLarge, Written, scalar

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"(\s*:)?')
_NO_TEXT = re.compile("[\0\ud800-\udfff]")


def compose_json(text: str) -> Fields:
    """The object that `text` is. Raises Malformed."""
    try:
        found = json.loads(text, object_pairs_hook=_Pairs, parse_constant=_refused)
    except json.JSONDecodeError as error:
        raise Malformed(f"this is not valid JSON: {error.msg[:1].lower()}{error.msg[1:]}", line=error.lineno) from error
    except (RecursionError, ValueError) as error:
        raise Malformed("this is not valid JSON; an object with mcpServers would be right", line=1) from error
    if not isinstance(found, _Pairs):
        raise Malformed("this is no JSON object; one with mcpServers would be right", line=1)
    fields = _written(found, 1, _key_lines(text), 0)
    assert isinstance(fields, Fields)
    return fields


class _Pairs(list[tuple[str, object]]):
    """An object's keys and values in the order in which they are written."""


def _refused(word: str) -> object:
    raise ValueError(word)


def _key_lines(text: str) -> Iterator[int]:
    """The line of every key, in the order in which they are written."""
    line, place = 1, 0
    for match in _STRING.finditer(text):
        if match[1]:
            line += text.count("\n", place, match.start())
            place = match.start()
            yield line


def _written(value: object, line: int, lines: Iterator[int], depth: int) -> Written:
    if depth > DEEPEST:
        raise Malformed(f"is nested more than {DEEPEST} deep; a flatter value would be right", line=line)
    if isinstance(value, _Pairs):
        fields: dict[str, Written] = {}
        for key, inner in value:
            at = next(lines)
            if key in fields:
                raise Malformed(
                    f"stands twice, here and on line {fields[key].line}; once would be right", line=at, key=key
                )
            fields[key] = _written(inner, at, lines, depth + 1)
        return Fields(line=line, fields=fields)
    if isinstance(value, list):
        return Items(line=line, items=tuple(_written(item, line, lines, depth + 1) for item in value))
    if isinstance(value, str):
        if _NO_TEXT.search(value):
            raise Malformed("has a character that is no text; text without it would be right", line=line)
        return scalar(value, line=line, is_plain=False)
    try:
        return scalar(json.dumps(value), line=line, is_plain=True)
    except TooLarge as error:
        raise Malformed(f"{error} is too large a number; at most 18 digits would be right", line=line) from error
