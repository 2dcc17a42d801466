"""Parse YAML, and record the kind and the line of every value.

The parser rejects aliases, anchors, tags, duplicate keys and deep nesting. It is not in `located_yaml` because
importing PyYAML is slow, and many commands and runs read no YAML.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import yaml

from .located_yaml import (
    MAX_DEPTH,
    ListNode,
    LocatedNode,
    MalformedText,
    MappingNode,
    NumberTooLarge,
    ScalarNode,
    describe_node,
    parse_scalar,
    quote_text,
)

LOADER: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the fast loader, if PyYAML was built with it

_TEXT_TAGS = (None, "!", "tag:yaml.org,2002:str")
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NO_TEXT = re.compile("[\0\ud800-\udfff]")  # escape sequences in quoted text can produce these characters


@dataclass(slots=True, kw_only=True)
class _OpenCollection:
    """A list or mapping that is still being parsed; `key` is the key whose value has not been parsed yet."""

    line: int
    is_mapping: bool = False
    items: list[LocatedNode] = field(default_factory=list)
    fields: dict[str, LocatedNode] = field(default_factory=dict)
    key: ScalarNode | None = None

    def to_node(self) -> LocatedNode:
        """Return the finished list or mapping."""
        if self.is_mapping:
            return MappingNode(line=self.line, fields=self.fields)
        return ListNode(line=self.line, items=tuple(self.items))


def parse_yaml_mapping(text: str, *, first_line: int = 1, loader: type = LOADER) -> MappingNode:
    """Parse `text`, which starts on `first_line` of its file, as a mapping. Raise MalformedText if it is invalid.

    The nodes are built from parser events and not by PyYAML's composer, because the composer follows
    aliases, keeps only the last of duplicate keys, and overflows the stack on deep nesting.
    """
    open_parts = [_OpenCollection(line=first_line)]
    try:
        for event in yaml.parse(text, Loader=loader):
            _handle_event(event, open_parts)
    except yaml.reader.ReaderError as error:
        raise _explain_unprintable(text, first_line) from error
    except yaml.MarkedYAMLError as error:
        raise _explain_yaml_error(error, text, first_line) from error
    except (ValueError, OverflowError) as error:  # the slow loader raises these errors for an invalid escape sequence
        raise MalformedText(f"this is not valid YAML: {error}", line=first_line) from error
    documents = open_parts[0].items
    if not documents or (isinstance(documents[0], ScalarNode) and documents[0].kind == "nothing"):
        return MappingNode(line=first_line, fields={})
    if not isinstance(documents[0], MappingNode):
        right = "a mapping with entries such as KEY: VALUE"
        raise MalformedText(f"expected {right}, got {describe_node(documents[0])}", line=documents[0].line)
    return documents[0]


def _handle_event(event: yaml.Event, open_parts: list[_OpenCollection]) -> None:
    """Apply a parser event to the innermost open collection."""
    here = open_parts[-1]
    if isinstance(event, yaml.NodeEvent):
        _reject_unsupported(event, open_parts)
        if isinstance(event, yaml.ScalarEvent):
            _add_node(_read_scalar(event, open_parts), open_parts)
            return
        if len(open_parts) > MAX_DEPTH:
            raise _make_error(f"is nested more than {MAX_DEPTH} levels deep; use a flatter value", event, open_parts)
        if here.is_mapping and here.key is None:
            raise _make_error("got a list or mapping as a key; expected text", event, open_parts)
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        open_parts.append(_OpenCollection(line=_find_line(event, open_parts), is_mapping=is_mapping))
    elif isinstance(event, yaml.CollectionEndEvent):
        _add_node(open_parts.pop().to_node(), open_parts)
    elif isinstance(event, yaml.DocumentStartEvent) and here.items:
        raise _make_error("a second YAML document starts here; expected only one", event, open_parts)


def _reject_unsupported(event: yaml.NodeEvent, open_parts: list[_OpenCollection]) -> None:
    """Raise MalformedText for aliases, anchors and tags."""
    if event.anchor is not None:
        sign = "*" if isinstance(event, yaml.AliasEvent) else "&"
        word = quote_text(f"{sign}{event.anchor}")
        right = "write out the value instead, or put it in quotes if it is meant as text"
        raise _make_error(f"{word} is a YAML alias or anchor, which is not supported; {right}", event, open_parts)
    tag = getattr(event, "tag", None)
    if tag not in _TEXT_TAGS or (tag is not None and not isinstance(event, yaml.ScalarEvent)):
        word = quote_text(str(tag).replace("tag:yaml.org,2002:", "!!"))
        raise _make_error(f"{word} is a YAML tag, which is not supported; use a plain value", event, open_parts)


def _read_scalar(event: yaml.ScalarEvent, open_parts: list[_OpenCollection]) -> ScalarNode:
    """Return the scalar from a parser event."""
    if odd := _NO_TEXT.search(event.value):
        message = f"contains the character U+{ord(odd[0]):04X}, which is not allowed; remove it"
        raise _make_error(message, event, open_parts)
    try:
        return parse_scalar(event.value, line=_find_line(event, open_parts), is_plain=event.implicit[0])
    except NumberTooLarge as error:
        right = "use at most 18 digits, or put it in quotes if it is meant as text"
        raise _make_error(f"the number {error} is too large; {right}", event, open_parts) from error


def _add_node(value: LocatedNode, open_parts: list[_OpenCollection]) -> None:
    """Add `value` to the innermost open collection: as a list item, as a key, or as the value of the open key."""
    here = open_parts[-1]
    if not here.is_mapping:
        here.items.append(value)
    elif here.key is not None:
        here.fields[here.key.raw] = value
        here.key = None
    elif isinstance(value, ScalarNode):
        first, here.key = here.fields.get(value.raw), value
        if first is not None:
            message = f"duplicate key, also on line {first.line}; keep only one"
            raise MalformedText(message, line=value.line, key=_format_key_path(open_parts))


def _find_line(event: yaml.Event, open_parts: list[_OpenCollection]) -> int:
    """Return the line of the file on which the value or its key starts."""
    if key := open_parts[-1].key:
        return key.line
    return open_parts[0].line + (event.start_mark.line if event.start_mark else 0)


def _format_key_path(open_parts: list[_OpenCollection]) -> str:
    """Return the key path at the parser's position."""
    return ".".join(part.key.raw for part in open_parts if part.key)


def _make_error(message: str, event: yaml.Event, open_parts: list[_OpenCollection]) -> MalformedText:
    return MalformedText(message, line=_find_line(event, open_parts), key=_format_key_path(open_parts))


def _explain_unprintable(text: str, first_line: int) -> MalformedText:
    """Return the error for a character that the parser rejects."""
    found = _UNPRINTABLE.search(text)
    place = found.start() if found else 0
    sign = f"U+{ord(found[0]):04X}" if found else "a character"
    line = text.count("\n", 0, place) + first_line
    return MalformedText(f"contains {sign}, which YAML does not allow; remove it", line=line)


def _explain_yaml_error(error: yaml.MarkedYAMLError, text: str, first_line: int) -> MalformedText:
    """Return the error for text that the parser rejects, with a hint for common mistakes."""
    mark = error.problem_mark or error.context_mark
    number = mark.line if mark else 0
    lines = text.split("\n")
    line = lines[number] if number < len(lines) else ""
    problem = (error.problem or "it cannot be parsed").replace(
        "cannot start any token", "cannot start a key or a value"
    )
    if "mapping values" in problem:
        problem += "; text that contains a colon needs quotes"
    elif "\t" in line:
        problem += "; use spaces instead of tabs"
    elif "cannot start a key or a value" in problem:
        problem += "; text that starts with this character needs quotes"
    key = re.match(r"\s*([A-Za-z_]\w*)\s*:", line)
    return MalformedText(f"this is not valid YAML: {problem}", line=number + first_line, key=key[1] if key else "")
