"""A value as it stands in a file: what it is, and on which line.

Which plain words are numbers, flags or dates is decided here, as YAML 1.2 has it with the `yes`
and `no` of YAML 1.1. What a value should have been is for those who read it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["text", "whole", "number", "flag", "nothing", "date"]

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
