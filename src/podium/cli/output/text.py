"""Format text for terminals. Control characters in text from files, models and programs are escaped."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

import click
from msgspec import to_builtins

from ...values.plain_text import NARROW, format_count
from ...values.plain_text import count_fitting as count_fitting
from ...values.plain_text import display_width as display_width
from ...values.plain_text import escape_for_terminal as escape_for_terminal
from ...values.plain_text import format_age as format_age
from ...values.plain_text import format_duration as format_duration
from ...values.plain_text import format_money as format_money
from ...values.plain_text import truncate_line as truncate_line
from ...values.usage import Usage

BROKEN_PIPE = 141
"""The exit code that shells expect after a broken pipe: 128 + SIGPIPE."""


def as_json(value: Any) -> str:
    """Return `value` as indented ASCII JSON, which cannot contain terminal control characters."""
    return json.dumps(to_builtins(value), indent=2)


def print_to_stderr(sentence: str) -> None:
    """Print a message to standard error."""
    click.echo(escape_for_terminal(sentence), err=True)


def format_usage(usage: Usage) -> str:
    """Return model usage as text: calls, tokens and cost, and rehearsed calls, which reached no model."""
    rehearsed = format_count(usage.rehearsed_calls, "rehearsed call") if usage.rehearsed_calls else ""
    if rehearsed and not usage.calls:
        return rehearsed
    words = f"{format_count(usage.calls, 'model call')}, {format_count(usage.tokens, 'token')}"
    words = f"{words}, {format_money(usage.usd)}" if usage.usd else words
    return f"{words}; {rehearsed}" if rehearsed else words


def truncate_start(text: str, most: int) -> str:
    """Return the end of `text` as one line of at most `most` columns."""
    # Only the end is processed: the text may be long, and this is called often.
    line = " ".join(text[-4 * most :].split())
    start = _find_fitting_end(line, most - 1)
    return line if start == 0 and len(text) <= 4 * most else f"…{line[start:].lstrip()}"


def _find_fitting_end(line: str, most: int) -> int:
    """Return the start index of the longest suffix that fits into `most` columns."""
    if NARROW.fullmatch(line):
        return max(len(line) - most, 0)
    # Imported here to keep start-up fast: most text is Latin and does not need it.
    from wcwidth import iter_graphemes_reverse

    columns, start = 0, len(line)
    for sign in iter_graphemes_reverse(line):
        if (columns := columns + display_width(sign)) > most:
            break
        start -= len(sign)
    return start


def align_columns(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Pad each cell to the width of its column, except for the last cell of a row."""
    widths = [max(map(display_width, column)) for column in zip(*rows, strict=True)]
    return [
        [cell + " " * (wide - display_width(cell)) for cell, wide in zip(row[:-1], widths, strict=False)] + [row[-1]]
        for row in rows
    ]


def fit_columns(rows: Sequence[Sequence[str]], *, most: int, least: int = 20) -> list[str]:
    """Return rows as aligned lines. The last cell is cut to the remaining width, but keeps at least `least` columns."""
    padded = align_columns(rows)
    room = max([least, *(most - display_width("  ".join([*row[:-1], ""])) for row in padded[:1])])
    return ["  ".join([*row[:-1], truncate_line(row[-1], room)]).rstrip() for row in padded]


def drop_columns(rows: Sequence[Sequence[str]], *, most: int, spare: Sequence[str]) -> list[list[str]]:
    """Drop columns listed in `spare`, in that order, until the rows fit into `most` columns.

    The first row is the header. Of the columns in `spare`, those without any values are dropped first.
    """
    kept = [list(column) for column in zip(*rows, strict=True)]
    empty = [head for head, *cells in kept if head in spare and set(cells) <= {"-"}]
    for head in [*empty, *(one for one in spare if one not in empty)]:
        if sum(max(map(display_width, column)) + 2 for column in kept) - 2 <= most:
            break
        kept = [column for column in kept if column[0] != head]
    return [list(row) for row in zip(*kept, strict=True)]


def discard_stdout() -> int:
    """Discard all further standard output and return the exit code to use after a broken pipe."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return BROKEN_PIPE


def discard_unwritable_stdout() -> None:
    """If the output that is still buffered cannot be written, discard it; Python would try again at its exit."""
    try:
        if sys.stdout is not None:  # it is None after `podium ps >&-`
            sys.stdout.flush()
    except (OSError, ValueError):
        discard_stdout()
