"""Find hidden characters: control characters, and characters that are invisible or look like a space."""

from __future__ import annotations

from unicodedata import category

HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})
BLANKS = frozenset("\u034f\u115f\u1160\u2800\u3164\uffa0")
"""Characters outside the hidden categories that are invisible or look like a space."""
LAYOUT = frozenset(" \n\t")
"""Whitespace characters that do not count as hidden: space, line feed and tab."""


def is_hidden(character: str) -> bool:
    """Return whether this character is hidden from a reader. Ordinary spaces, line breaks and tabs are not hidden."""
    if character.isascii():
        return not character.isprintable() and character not in LAYOUT
    is_selector = "\u180b" <= character <= "\u180f" or "\ufe00" <= character <= "\ufe0f"
    return is_selector or character in BLANKS or category(character) in HIDDEN_CATEGORIES or character >= "\U000e0000"


def escape_if_hidden(character: str) -> str:
    """Return a hidden character as its code, and any other character unchanged."""
    if not is_hidden(character):
        return character
    code = ord(character)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
