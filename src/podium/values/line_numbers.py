"""Define how `read_file` numbers the lines that it shows, and recognise these numbers in a text."""

from __future__ import annotations

import re

_WIDTH = 6
_NUMBERED = re.compile(r" *(\d+)\t")
_PADDED = re.compile(rf"(?= *\d+\t)[ \d]{{{_WIDTH},}}\t")


def number_line(number: int, text: str) -> str:
    """Return a line with its number in front."""
    return f"{number:>{_WIDTH}}\t{text}"


def begins_numbered(text: str) -> bool:
    """Return whether a text begins with a number as `number_line` writes it, which no table has in its first column."""
    return _PADDED.match(text) is not None


def is_numbered(text: str) -> bool:
    """Return whether all lines of a text are numbered in order."""
    lines = text.rstrip("\n").split("\n")
    return _count_numbered(lines) == len(lines)


def remove_line_numbers(text: str) -> str:
    """Return the text without the numbers of the lines at its beginning that are numbered in order."""
    lines = text.split("\n")
    count = _count_numbered(lines)
    return "\n".join([line.partition("\t")[2] for line in lines[:count]] + lines[count:])


def _count_numbered(lines: list[str]) -> int:
    """Return how many of the first lines are numbered in order."""
    expected: int | None = None
    for place, line in enumerate(lines):
        found = _NUMBERED.match(line)
        if found is None or expected not in (None, int(found[1])):
            return place
        expected = int(found[1]) + 1
    return len(lines)
