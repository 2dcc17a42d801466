"""Wrap the text of a request, so that no part of a long line can be mistaken for a line of Podium.

A terminal continues a long line at its left edge, where Podium's own lines begin. Here, every continued line begins
with a margin instead. A terminal that is made narrower afterwards wraps the lines again, without a margin.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress

from .text import count_fitting, display_width

MARGIN = "    | "
"""The start of each line that continues the line above."""
NARROWEST = 24
LONGEST_WORD = 24
"""How many columns of a line can stay empty so that a word is not divided."""


def wrap_request(text: str, columns: int = 0) -> str:
    """Return the text with its long lines wrapped to the terminal's width, or to `columns` if that is given.

    Tabs become spaces. Hidden characters must have been escaped.
    """
    most = max(NARROWEST, columns or _find_columns()) - 1
    return "\n".join(part for line in text.split("\n") for part in _wrap_line(line.expandtabs(), most))


def _find_columns() -> int:
    """Return the width of the terminal; what is shown on it can be standard output or standard error."""
    for stream in (2, 1, 0):
        with suppress(OSError):
            if columns := os.get_terminal_size(stream).columns:
                return columns
    return shutil.get_terminal_size().columns


def _wrap_line(line: str, most: int) -> Iterator[str]:
    start, margin = 0, ""
    while True:
        # Only the beginning of the rest is measured: a line can be very long.
        rest, room = line[start : start + 2 * most], most - len(margin)
        if start + len(rest) == len(line) and display_width(rest) <= room:
            yield f"{margin}{rest}"
            return
        end = max(1, count_fitting(rest, room))
        space = rest.rfind(" ", max(1, end - LONGEST_WORD), end)
        end = space + 1 if space > 0 else end
        yield f"{margin}{rest[:end]}"
        start, margin = start + end, MARGIN
