"""Text on a terminal: what came from files, models and other programs is shown and never acts."""

from __future__ import annotations

import json
from typing import Any
from unicodedata import category

from msgspec import to_builtins

HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def escape_for_terminal(text: str) -> str:
    """`text` with every sign that a terminal would act on or hide as an escape; line breaks and tabs stay."""
    return text if text.isprintable() else "".join(map(_escape_character, text))


def _escape_character(character: str) -> str:
    if character in "\n\t" or category(character) not in HIDDEN_CATEGORIES:
        return character
    code = ord(character)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def as_json(value: Any) -> str:
    """`value` as JSON for people and programs, in ASCII, so that nothing in it acts on a terminal."""
    return json.dumps(to_builtins(value), indent=2)
