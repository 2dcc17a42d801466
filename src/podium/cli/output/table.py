"""Format rows as a table for the terminal, from the columns of their list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec import UNSET

from ...values.column import Column, Kind
from ...values.plain_text import format_size
from .text import (
    align_columns,
    drop_columns,
    escape_for_terminal,
    fit_columns,
    format_age,
    format_duration,
    format_money,
    format_usage,
)

Row = TypeVar("Row")
NARROWEST = 12
"""The width that a column with `fills` keeps on a narrow terminal."""

_MISSING = (UNSET, None, "", ())
_BREAKS = str.maketrans({"\n": "\\n", "\r": "\\r", "\t": "\\t"})


def format_table(
    rows: Sequence[Row],
    columns: Sequence[Column[Row]],
    *,
    now: float,
    most: int | None = None,
    least: int = NARROWEST,
    has_headings: bool = True,
) -> list[str]:
    """Return a line with the headings and a line for each row.

    To fit into `most` terminal columns, columns are dropped, and the one that fills the line is cut.
    """
    shown = sorted((column for column in columns if column.is_in_terminal), key=lambda column: column.fills)
    cells = [[column.heading.upper() for column in shown]] if has_headings else []
    cells += [[_format_cell(row, column, now=now) for column in shown] for row in rows]
    if most is None:
        return ["  ".join(row).rstrip() for row in align_columns(cells)]
    is_filled = shown[-1].fills
    last = [row.pop() for row in cells] if is_filled else []
    spare = [one.heading.upper() for one in sorted(shown, key=lambda one: -one.spare) if one.spare]
    kept = drop_columns(cells, most=most - least - 2 if is_filled else most, spare=spare) if spare else cells
    if not is_filled:
        return ["  ".join(row).rstrip() for row in align_columns(kept)]
    return fit_columns([[*row, text] for row, text in zip(kept, last, strict=True)], most=most, least=least)


def format_line(row: Row, columns: Sequence[Column[Row]], *, now: float) -> str:
    """Return a row as a line of a list whose columns are not aligned."""
    return "  ".join(_format_cell(row, column, now=now) for column in columns if column.is_in_terminal)


def _format_cell(row: Row, column: Column[Row], *, now: float) -> str:
    """Return a value as text on one line, with hidden characters escaped."""
    if column.text is not None:
        text = column.text(row)
    else:
        value = column.get(row)
        text = "-" if value in _MISSING else _FORMATS[column.kind](value, now)
    return escape_for_terminal(" ".join(text.split()) if column.fills else text).translate(_BREAKS)


_FORMATS: dict[Kind, Callable[..., str]] = {
    "text": lambda value, now: str(value),
    "number": lambda value, now: f"{value:,}",
    "money": lambda value, now: format_money(value),
    "usage": lambda value, now: format_usage(value),
    "size": lambda value, now: format_size(value),
    "age": lambda value, now: format_age(now - value),
    "duration": lambda value, now: format_duration(value),
    "data": lambda value, now: ", ".join(map(str, value)),
}
