"""Parse and format byte sizes in decimal units."""

from __future__ import annotations

import re

MAX_SIZE = 2**63 - 1
"""The largest size, in bytes, that all stores and message formats can represent."""

UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}

_WRITTEN = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,3})?) ?(B|kB|MB|GB|TB)?", re.IGNORECASE)


def parse_size(text: str) -> int | None:
    """Parse a size such as `20GB`, `1.5 MB` or `500`, and return it in bytes.

    Return None if the text is not a size, or if it is not a whole number of bytes from 1 to MAX_SIZE.
    """
    found = _WRITTEN.fullmatch(text.strip())
    if found is None:
        return None
    unit = next((size for name, size in UNITS.items() if name.casefold() == (found[2] or "B").casefold()), 1)
    # Computed with integers, because a float would not be exact.
    whole, _, part = found[1].partition(".")
    size, rest = divmod(int(whole + part) * unit, 10 ** len(part))
    return size if 0 < size <= MAX_SIZE and rest == 0 else None


def format_size(size: int) -> str:
    """Format a size with at most one decimal place: `3.2 GB`, `20 GB`, `812 B`."""
    for name, unit in reversed(UNITS.items()):
        if size >= unit:
            return f"{size / unit:.1f}".removesuffix(".0") + f" {name}"
    return "0 B"
