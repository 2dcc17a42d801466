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

ScalarKind = Literal["text", "whole", "number", "flag", "nothing", "date"]

MAX_DEPTH = 40
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
class ScalarNode:
    """A single word, number or text; `raw` is how it is spelled."""

    line: int
    kind: ScalarKind
    value: str | int | float | bool | None
    raw: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListNode:
    """A list."""

    line: int
    items: tuple[LocatedNode, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingNode:
    """A mapping of keys to values; a value's line is that of its key."""

    line: int
    fields: Mapping[str, LocatedNode]


LocatedNode = ScalarNode | ListNode | MappingNode


class NumberTooLarge(ValueError):
    """A number that no store or wire could carry."""


def parse_scalar(raw: str, *, line: int, is_plain: bool) -> ScalarNode:
    """What `raw` means; text in quotes is always text."""
    kind, value = _parse_plain_scalar(raw) if is_plain else ("text", raw)
    return ScalarNode(line=line, kind=kind, value=value, raw=raw)


def _parse_plain_scalar(raw: str) -> tuple[ScalarKind, str | int | float | bool | None]:
    """The kind and the value of an unquoted word."""
    if raw in ("", "~", "null", "Null", "NULL"):
        return "nothing", None
    if (flag := _FLAGS.get(raw.lower())) is not None:
        return "flag", flag
    if _WHOLE.fullmatch(raw):
        if len(raw.strip("+-").replace("_", "")) > _DIGITS:
            raise NumberTooLarge(truncate_text(raw))
        return "whole", int(raw)
    if _NUMBER.fullmatch(raw):
        if not math.isfinite(value := float(raw)):
            raise NumberTooLarge(truncate_text(raw))
        return "number", value
    return ("date" if _DATE.fullmatch(raw) else "text"), raw


def to_plain_value(node: LocatedNode) -> Any:
    """The bare value, as JSON could carry it."""
    if isinstance(node, ListNode):
        return [to_plain_value(item) for item in node.items]
    if isinstance(node, MappingNode):
        return {key: to_plain_value(value) for key, value in node.fields.items()}
    return node.value


def describe_node(node: LocatedNode) -> str:
    """What stands there, as the beginning of a sentence."""
    if isinstance(node, ListNode):
        return "a list stands here"
    if isinstance(node, MappingNode):
        return "a mapping stands here"
    if node.kind == "nothing":
        return "nothing stands here"
    if node.kind == "text":
        return f"{quote_text(node.raw)} is text"
    if node.kind == "flag":
        return f"{node.raw} reads as {'true' if node.value else 'false'}"
    return f"{truncate_text(node.raw)} reads as a {'date' if node.kind == 'date' else 'number'}"


def quote_text(text: str) -> str:
    """`text` in quotes, on one line and not too long."""
    return json.dumps(truncate_text(text), ensure_ascii=False)


def truncate_text(text: str, most: int = 60) -> str:
    """`text`, cut where it is too long for a message."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


class MalformedText(Exception):
    """The text as a whole cannot be read, because of what stands on `line`."""

    def __init__(self, message: str, *, line: int, key: str = "") -> None:
        super().__init__(message)
        self.line = line
        self.key = key


@dataclass(slots=True, kw_only=True)
class _OpenCollection:
    """A list or a mapping whose end has not come yet; `key` waits for its value."""

    line: int
    is_mapping: bool = False
    items: list[LocatedNode] = field(default_factory=list)
    fields: dict[str, LocatedNode] = field(default_factory=dict)
    key: ScalarNode | None = None

    def to_node(self) -> LocatedNode:
        """What it is now that all of it is there."""
        if self.is_mapping:
            return MappingNode(line=self.line, fields=self.fields)
        return ListNode(line=self.line, items=tuple(self.items))


def parse_yaml_mapping(text: str, *, first_line: int = 1, loader: type = LOADER) -> MappingNode:
    """The mapping that `text` is, which begins on `first_line` of its file. Raises Malformed.

    Built from the parser's events and not by its composer, because that follows aliases, lets a
    later duplicate win, and runs out of stack on deep nesting.
    """
    open_parts = [_OpenCollection(line=first_line)]
    try:
        for event in yaml.parse(text, Loader=loader):
            _handle_event(event, open_parts)
    except yaml.reader.ReaderError as error:
        raise _explain_unprintable(text, first_line) from error
    except yaml.MarkedYAMLError as error:
        raise _explain_yaml_error(error, text, first_line) from error
    except (ValueError, OverflowError) as error:  # the slow loader's answer to an impossible escape
        raise MalformedText(f"this is not valid YAML: {error}", line=first_line) from error
    documents = open_parts[0].items
    if not documents or (isinstance(documents[0], ScalarNode) and documents[0].kind == "nothing"):
        return MappingNode(line=first_line, fields={})
    if not isinstance(documents[0], MappingNode):
        right = "keys with their values, such as KEY: VALUE, would be right"
        raise MalformedText(f"{describe_node(documents[0])}; {right}", line=documents[0].line)
    return documents[0]


def _handle_event(event: yaml.Event, open_parts: list[_OpenCollection]) -> None:
    """Add what `event` says to the innermost part that is still open."""
    here = open_parts[-1]
    if isinstance(event, yaml.NodeEvent):
        _reject_unsupported(event, open_parts)
        if isinstance(event, yaml.ScalarEvent):
            _add_node(_read_scalar(event, open_parts), open_parts)
            return
        if len(open_parts) > MAX_DEPTH:
            raise _make_error(
                f"is nested more than {MAX_DEPTH} deep; a flatter value would be right", event, open_parts
            )
        if here.is_mapping and here.key is None:
            raise _make_error("a list or mapping stands here as a key; text would be right", event, open_parts)
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        open_parts.append(_OpenCollection(line=_find_line(event, open_parts), is_mapping=is_mapping))
    elif isinstance(event, yaml.CollectionEndEvent):
        _add_node(open_parts.pop().to_node(), open_parts)
    elif isinstance(event, yaml.DocumentStartEvent) and here.items:
        raise _make_error("a second YAML document begins here; one would be right", event, open_parts)


def _reject_unsupported(event: yaml.NodeEvent, open_parts: list[_OpenCollection]) -> None:
    """No aliases, no anchors, no tags: a value says itself what it is."""
    if event.anchor is not None:
        sign = "*" if isinstance(event, yaml.AliasEvent) else "&"
        word = quote_text(f"{sign}{event.anchor}")
        right = "the value itself, or quotes around a text, would be right"
        raise _make_error(f"{word} is a YAML alias or anchor, which is not read; {right}", event, open_parts)
    tag = getattr(event, "tag", None)
    if tag not in _TEXT_TAGS or (tag is not None and not isinstance(event, yaml.ScalarEvent)):
        word = quote_text(str(tag).replace("tag:yaml.org,2002:", "!!"))
        raise _make_error(f"{word} is a YAML tag, which is not read; a plain value would be right", event, open_parts)


def _read_scalar(event: yaml.ScalarEvent, open_parts: list[_OpenCollection]) -> ScalarNode:
    """The single value that `event` brings."""
    if odd := _NO_TEXT.search(event.value):
        message = f"has the character U+{ord(odd[0]):04X}; text without it would be right"
        raise _make_error(message, event, open_parts)
    try:
        return parse_scalar(event.value, line=_find_line(event, open_parts), is_plain=event.implicit[0])
    except NumberTooLarge as error:
        right = "at most 18 digits would be right, or quotes around a text"
        raise _make_error(f"{error} is too large a number; {right}", event, open_parts) from error


def _add_node(value: LocatedNode, open_parts: list[_OpenCollection]) -> None:
    """Add `value` where it belongs: to a list, as a key, or under the key that waits for it."""
    here = open_parts[-1]
    if not here.is_mapping:
        here.items.append(value)
    elif here.key is not None:
        here.fields[here.key.raw] = value
        here.key = None
    elif isinstance(value, ScalarNode):
        first, here.key = here.fields.get(value.raw), value
        if first is not None:
            message = f"stands twice, here and on line {first.line}; once would be right"
            raise MalformedText(message, line=value.line, key=_format_key_path(open_parts))


def _find_line(event: yaml.Event, open_parts: list[_OpenCollection]) -> int:
    """The line of the file on which the value begins, or its key."""
    if key := open_parts[-1].key:
        return key.line
    return open_parts[0].line + (event.start_mark.line if event.start_mark else 0)


def _format_key_path(open_parts: list[_OpenCollection]) -> str:
    """The keys that lead to where the parser is."""
    return ".".join(part.key.raw for part in open_parts if part.key)


def _make_error(message: str, event: yaml.Event, open_parts: list[_OpenCollection]) -> MalformedText:
    return MalformedText(message, line=_find_line(event, open_parts), key=_format_key_path(open_parts))


def _explain_unprintable(text: str, first_line: int) -> MalformedText:
    """What is wrong when the parser refuses a character."""
    found = _UNPRINTABLE.search(text)
    place = found.start() if found else 0
    sign = f"U+{ord(found[0]):04X}" if found else "a character"
    line = text.count("\n", 0, place) + first_line
    return MalformedText(f"has {sign}, which YAML does not allow; text without it would be right", line=line)


def _explain_yaml_error(error: yaml.MarkedYAMLError, text: str, first_line: int) -> MalformedText:
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
    return MalformedText(f"this is not valid YAML: {problem}", line=number + first_line, key=key[1] if key else "")
