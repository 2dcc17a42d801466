"""YAML as it stands in a file: every value with its kind and its line.

Aliases, anchors, tags, duplicate keys and nesting without end are refused. Which plain words are
numbers, flags or dates is decided here, as YAML 1.2 has it with the `yes` and `no` of YAML 1.1.
What a value should have been is for those who read it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import yaml

Kind = Literal["text", "whole", "number", "flag", "nothing", "date"]

DEEPEST = 40
LOADER: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the fast one, where PyYAML was built with it

_TEXT_TAGS = (None, "!", "tag:yaml.org,2002:str")
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NO_TEXT = re.compile("[\0\ud800-\udfff]")  # an escape in quotes may bring these
_FLAGS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_WHOLE = re.compile(r"[-+]?(0|[1-9](_?[0-9])*)")
_NUMBER = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?")
_DIGITS = 18  # what fits a signed 64-bit number, as stores and wires have it


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    """A single word, number or text; `raw` is how it is spelled."""

    line: int
    kind: Kind
    value: str | int | float | bool | None
    raw: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """A list."""

    line: int
    items: tuple[Written, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """A mapping of keys to values; a value's line is that of its key."""

    line: int
    fields: Mapping[str, Written]


Written = Scalar | Items | Fields


class TooLarge(ValueError):
    """A number that no store or wire could carry."""


def scalar(raw: str, *, line: int, is_plain: bool) -> Scalar:
    """What `raw` means; text in quotes is always text."""
    kind, value = _resolved(raw) if is_plain else ("text", raw)
    return Scalar(line=line, kind=kind, value=value, raw=raw)


def _resolved(raw: str) -> tuple[Kind, str | int | float | bool | None]:
    """The kind and the value of an unquoted word."""
    if raw in ("", "~", "null", "Null", "NULL"):
        return "nothing", None
    if (flag := _FLAGS.get(raw.lower())) is not None:
        return "flag", flag
    if _WHOLE.fullmatch(raw):
        if len(raw.strip("+-").replace("_", "")) > _DIGITS:
            raise TooLarge(shortened(raw))
        return "whole", int(raw)
    if _NUMBER.fullmatch(raw):
        if not math.isfinite(value := float(raw)):
            raise TooLarge(shortened(raw))
        return "number", value
    return ("date" if _DATE.fullmatch(raw) else "text"), raw


def plain(written: Written) -> Any:
    """The bare value, as JSON could carry it."""
    if isinstance(written, Items):
        return [plain(item) for item in written.items]
    if isinstance(written, Fields):
        return {key: plain(value) for key, value in written.fields.items()}
    return written.value


def described(written: Written) -> str:
    """What stands there, as the beginning of a sentence."""
    if isinstance(written, Items):
        return "a list stands here"
    if isinstance(written, Fields):
        return "a mapping stands here"
    if written.kind == "nothing":
        return "nothing stands here"
    if written.kind == "text":
        return f"{quoted(written.raw)} is text"
    if written.kind == "flag":
        return f"{written.raw} reads as {'true' if written.value else 'false'}"
    return f"{shortened(written.raw)} reads as a {'date' if written.kind == 'date' else 'number'}"


def quoted(text: str) -> str:
    """`text` in quotes, on one line and not too long."""
    return json.dumps(shortened(text), ensure_ascii=False)


def shortened(text: str, most: int = 60) -> str:
    """`text`, cut where it is too long for a message."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


class Malformed(Exception):
    """The text as a whole cannot be read, because of what stands on `line`."""

    def __init__(self, message: str, *, line: int, key: str = "") -> None:
        super().__init__(message)
        self.line = line
        self.key = key


@dataclass(slots=True, kw_only=True)
class _Open:
    """A list or a mapping whose end has not come yet; `key` waits for its value."""

    line: int
    is_mapping: bool = False
    items: list[Written] = field(default_factory=list)
    fields: dict[str, Written] = field(default_factory=dict)
    key: Scalar | None = None

    def closed(self) -> Written:
        """What it is now that all of it is there."""
        if self.is_mapping:
            return Fields(line=self.line, fields=self.fields)
        return Items(line=self.line, items=tuple(self.items))


def compose(text: str, *, first_line: int = 1, loader: type = LOADER) -> Fields:
    """The mapping that `text` is, which begins on `first_line` of its file. Raises Malformed.

    Built from the parser's events and not by its composer, because that follows aliases, lets a
    later duplicate win, and runs out of stack on deep nesting.
    """
    open_parts = [_Open(line=first_line)]
    try:
        for event in yaml.parse(text, Loader=loader):
            _take(event, open_parts)
    except yaml.reader.ReaderError as error:
        raise _unprintable(text, first_line) from error
    except yaml.MarkedYAMLError as error:
        raise _invalid(error, text, first_line) from error
    except (ValueError, OverflowError) as error:  # the slow loader's answer to an impossible escape
        raise Malformed(f"this is not valid YAML: {error}", line=first_line) from error
    documents = open_parts[0].items
    if not documents or (isinstance(documents[0], Scalar) and documents[0].kind == "nothing"):
        return Fields(line=first_line, fields={})
    if not isinstance(documents[0], Fields):
        right = "keys with their values, such as KEY: VALUE, would be right"
        raise Malformed(f"{described(documents[0])}; {right}", line=documents[0].line)
    return documents[0]


def _take(event: yaml.Event, open_parts: list[_Open]) -> None:
    """Add what `event` says to the innermost part that is still open."""
    here = open_parts[-1]
    if isinstance(event, yaml.NodeEvent):
        _refuse(event, open_parts)
        if isinstance(event, yaml.ScalarEvent):
            _put(_scalar(event, open_parts), open_parts)
            return
        if len(open_parts) > DEEPEST:
            raise _malformed(f"is nested more than {DEEPEST} deep; a flatter value would be right", event, open_parts)
        if here.is_mapping and here.key is None:
            raise _malformed("a list or mapping stands here as a key; text would be right", event, open_parts)
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        open_parts.append(_Open(line=_line(event, open_parts), is_mapping=is_mapping))
    elif isinstance(event, yaml.CollectionEndEvent):
        _put(open_parts.pop().closed(), open_parts)
    elif isinstance(event, yaml.DocumentStartEvent) and here.items:
        raise _malformed("a second YAML document begins here; one would be right", event, open_parts)


def _refuse(event: yaml.NodeEvent, open_parts: list[_Open]) -> None:
    """No aliases, no anchors, no tags: a value says itself what it is."""
    if event.anchor is not None:
        sign = "*" if isinstance(event, yaml.AliasEvent) else "&"
        word = quoted(f"{sign}{event.anchor}")
        right = "the value itself, or quotes around a text, would be right"
        raise _malformed(f"{word} is a YAML alias or anchor, which is not read; {right}", event, open_parts)
    tag = getattr(event, "tag", None)
    if tag not in _TEXT_TAGS or (tag is not None and not isinstance(event, yaml.ScalarEvent)):
        word = quoted(str(tag).replace("tag:yaml.org,2002:", "!!"))
        raise _malformed(f"{word} is a YAML tag, which is not read; a plain value would be right", event, open_parts)


def _scalar(event: yaml.ScalarEvent, open_parts: list[_Open]) -> Scalar:
    """The single value that `event` brings."""
    if odd := _NO_TEXT.search(event.value):
        message = f"has the character U+{ord(odd[0]):04X}; text without it would be right"
        raise _malformed(message, event, open_parts)
    try:
        return scalar(event.value, line=_line(event, open_parts), is_plain=event.implicit[0])
    except TooLarge as error:
        right = "at most 18 digits would be right, or quotes around a text"
        raise _malformed(f"{error} is too large a number; {right}", event, open_parts) from error


def _put(value: Written, open_parts: list[_Open]) -> None:
    """Add `value` where it belongs: to a list, as a key, or under the key that waits for it."""
    here = open_parts[-1]
    if not here.is_mapping:
        here.items.append(value)
    elif here.key is not None:
        here.fields[here.key.raw] = value
        here.key = None
    elif isinstance(value, Scalar):
        first, here.key = here.fields.get(value.raw), value
        if first is not None:
            message = f"stands twice, here and on line {first.line}; once would be right"
            raise Malformed(message, line=value.line, key=_place(open_parts))


def _line(event: yaml.Event, open_parts: list[_Open]) -> int:
    """The line of the file on which the value begins, or its key."""
    if key := open_parts[-1].key:
        return key.line
    return open_parts[0].line + (event.start_mark.line if event.start_mark else 0)


def _place(open_parts: list[_Open]) -> str:
    """The keys that lead to where the parser is."""
    return ".".join(part.key.raw for part in open_parts if part.key)


def _malformed(message: str, event: yaml.Event, open_parts: list[_Open]) -> Malformed:
    return Malformed(message, line=_line(event, open_parts), key=_place(open_parts))


def _unprintable(text: str, first_line: int) -> Malformed:
    """What is wrong when the parser refuses a character."""
    found = _UNPRINTABLE.search(text)
    place = found.start() if found else 0
    sign = f"U+{ord(found[0]):04X}" if found else "a character"
    line = text.count("\n", 0, place) + first_line
    return Malformed(f"has {sign}, which YAML does not allow; text without it would be right", line=line)


def _invalid(error: yaml.MarkedYAMLError, text: str, first_line: int) -> Malformed:
    """What is wrong when the parser refuses the text, in words that help with the usual mistakes."""
    mark = error.problem_mark or error.context_mark
    number = mark.line if mark else 0
    lines = text.split("\n")
    line = lines[number] if number < len(lines) else ""
    problem = error.problem or "it cannot be parsed"
    if "mapping values" in problem:
        problem += "; a text with a colon in it needs quotes"
    elif "\t" in line:
        problem += "; use spaces where tabs stand"
    elif "cannot start any token" in problem:
        problem += "; a text that begins with this character needs quotes"
    key = re.match(r"\s*([A-Za-z_]\w*)\s*:", line)
    return Malformed(f"this is not valid YAML: {problem}", line=number + first_line, key=key[1] if key else "")
