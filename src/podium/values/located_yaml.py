"""The values of a YAML file, with the kind and the line of every value.

Unquoted scalars are parsed roughly as in the core schema of YAML 1.2. In addition, `yes`, `no`, `on` and `off` are
booleans, and dates are recognised, as in YAML 1.1. Callers check whether a value is of the expected kind. The module
`yaml_parser` parses the text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .plain_text import truncate_text

ScalarKind = Literal["text", "whole", "number", "flag", "nothing", "date"]

MAX_DEPTH = 40

_FLAGS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_WHOLE = re.compile(r"[-+]?(0|[1-9](_?[0-9])*)")
_NUMBER = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([Tt ].*)?")
# The maximum number of digits. Any such number fits in a signed 64-bit integer, as stores and message formats require.
_DIGITS = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarNode:
    """A single value, such as text or a number; `raw` is its text in the file, without quotes."""

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
    """A mapping of keys to values. Each value has the line number of its key."""

    line: int
    fields: Mapping[str, LocatedNode]


LocatedNode = ScalarNode | ListNode | MappingNode


class NumberTooLarge(ValueError):
    """The number is too large for stores and message formats."""


def parse_scalar(raw: str, *, line: int, is_plain: bool) -> ScalarNode:
    """Parse a scalar. If `is_plain` is False, the scalar was quoted and its value is always text."""
    kind, value = _parse_plain_scalar(raw) if is_plain else ("text", raw)
    return ScalarNode(line=line, kind=kind, value=value, raw=raw)


def _parse_plain_scalar(raw: str) -> tuple[ScalarKind, str | int | float | bool | None]:
    """Return the kind and the value of an unquoted scalar."""
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
    """Convert a node to plain dicts, lists and scalars, without its line numbers and kinds."""
    if isinstance(node, ListNode):
        return [to_plain_value(item) for item in node.items]
    if isinstance(node, MappingNode):
        return {key: to_plain_value(value) for key, value in node.fields.items()}
    return node.value


def describe_node(node: LocatedNode) -> str:
    """Describe a value for the end of a sentence: `expected a string, got a list`."""
    if isinstance(node, ListNode):
        return "a list"
    if isinstance(node, MappingNode):
        return "a mapping"
    if node.kind == "nothing":
        return "no value"
    if node.kind == "text":
        return f"the string {quote_text(node.raw)}"
    if node.kind == "flag":
        return f"the boolean {node.raw}"
    return f"the {'date' if node.kind == 'date' else 'number'} {truncate_text(node.raw)}"


def quote_text(text: str) -> str:
    """Return `text` in quotes on one line, shortened if it is too long."""
    return json.dumps(truncate_text(text), ensure_ascii=False)


class MalformedText(Exception):
    """The text cannot be parsed; the problem is on `line`."""

    def __init__(self, message: str, *, line: int, key: str = "") -> None:
        super().__init__(message)
        self.line = line
        self.key = key
