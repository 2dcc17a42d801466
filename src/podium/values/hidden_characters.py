"""Find hidden characters: control characters, invisible characters, and marks that hide other characters.

The dashboard's module `parts/hidden_characters.mjs` is generated from the tables here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from unicodedata import category

CONTROL_CATEGORIES = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
HIDDEN_CATEGORIES = frozenset({*CONTROL_CATEGORIES, "Zs"})
SELECTORS = ((0x180B, 0x180F), (0xFE00, 0xFE0F))
"""Ranges of characters that select a variant of the character before them, such as a coloured emoji."""
INVISIBLE = (
    (0x00AD, 0x00AD),
    (0x034F, 0x034F),
    (0x061C, 0x061C),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180E, 0x180E),
    (0x200B, 0x200F),
    (0x202A, 0x202E),
    (0x2060, 0x206F),
    (0x2800, 0x2800),
    (0x3164, 0x3164),
    (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFFC),
    (0x16FE4, 0x16FE4),
    (0x1BCA0, 0x1BCA3),
    (0x1D159, 0x1D159),
    (0x1D173, 0x1D17A),
    (0xE0000, 0x10FFFF),
)
"""Ranges of characters that show nothing or only a space: those that Unicode lets programs ignore, and blank ones."""
OVERLAYS = (
    (0x0334, 0x0338),
    (0x0488, 0x0489),
    (0x1ABE, 0x1ABE),
    (0x1CD4, 0x1CD4),
    (0x1CE2, 0x1CE8),
    (0x20D0, 0x20FF),
    (0xA670, 0xA672),
    (0x10A39, 0x10A39),
    (0x16AF0, 0x16AF4),
    (0x1BC9E, 0x1BC9E),
    (0x1D167, 0x1D169),
)
"""Ranges of marks that are drawn over or around the character before them: strokes, circles and combining symbols."""
MOST_MARKS = 4
"""How many marks above or below one character are shown. More of them reach into the lines around."""
LAYOUT = frozenset(" \n\t")
"""Whitespace characters that do not count as hidden: space, line feed and tab."""

_PLAIN = re.compile(
    r"[\n\t -~\u00a1-\u00ac\u00ae-\u02ff\u0400-\u0482\u2010-\u2027\u2500-\u257f\u3041-\u3096\u4e00-\u9fff]*"
)
"""Matches text of common characters, none of which is hidden."""


def is_hidden(character: str) -> bool:
    """Return whether this character is hidden from a reader. Ordinary spaces, line breaks and tabs are not hidden."""
    return _is_hidden(character, keeps_variants=False)


def _escape_character(character: str) -> str:
    """Return the code of a character, such as `\\u200b`."""
    code = ord(character)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def escape_hidden(text: str, *, keeps_variants: bool = False) -> str:
    """Return the text with hidden characters as their codes.

    If `keeps_variants`, wide and other unusual spaces and the selectors of variants are kept, which honest prose uses.
    """
    if _PLAIN.fullmatch(text):
        return text
    marked = _mark_hidden(text, keeps_variants=keeps_variants)
    return "".join(_escape_character(one) if hidden else one for one, hidden in marked)


def find_hidden(text: str) -> list[str]:
    """Return the codes of the hidden characters in a text, each once and in order."""
    if _PLAIN.fullmatch(text):
        return []
    return [_escape_character(one) for one in sorted({one for one, hidden in _mark_hidden(text) if hidden})]


def _mark_hidden(text: str, *, keeps_variants: bool = False) -> Iterator[tuple[str, bool]]:
    """Yield each character, and whether it is hidden by itself or as a mark at this place.

    A mark is hidden after MOST_MARKS others, and if no letter, digit or symbol comes before the marks: it would be
    drawn over a character that has a meaning for programs, or at the start of a line.
    """
    marks, has_base = 0, False
    for character in text:
        hidden = _is_hidden(character, keeps_variants=keeps_variants)
        if not character.isascii() and category(character) in ("Mn", "Me"):
            marks += 1
            has_base = has_base and not hidden and marks <= MOST_MARKS
            yield character, hidden or not has_base
            continue
        marks, has_base = 0, character.isalnum() or not (hidden or character.isascii() or character.isspace())
        yield character, hidden


def _is_hidden(character: str, *, keeps_variants: bool) -> bool:
    if character.isascii():
        return not character.isprintable() and character not in LAYOUT
    code = ord(character)
    if _is_in(code, SELECTORS):
        return not keeps_variants or code == 0x180E
    if _is_in(code, INVISIBLE) or _is_in(code, OVERLAYS):
        return True
    kind = category(character)
    return kind in HIDDEN_CATEGORIES and not (keeps_variants and kind == "Zs")


def _is_in(code: int, ranges: tuple[tuple[int, int], ...]) -> bool:
    return any(first <= code <= last for first, last in ranges)
