"""Lay out Markdown tables as lines for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from .styled_text import Line, Span, TextStyle, measure_line, wrap_spans

GAP = 2
NARROWEST = 8
"""If a table column would be narrower than this many terminal columns, each cell is printed on a separate line."""

BOLD, DIM = frozenset[TextStyle]({"bold"}), frozenset[TextStyle]({"dim"})

Cell = Sequence[Span]


def layout_table(rows: Sequence[Sequence[Cell]], width: int, *, is_right: Sequence[bool], rule: str) -> list[Line]:
    """Return the lines of a table whose first row is the header. Cells that do not fit are wrapped."""
    widths = choose_widths(rows, width)
    if widths is None:
        return list_cells(rows, width)
    header, *body = [layout_row(row, widths, is_right) for row in rows]
    bold = [[Span(text, styles | BOLD) for text, styles in line] for line in header]
    between = Span(rule * (sum(widths) + GAP * (len(widths) - 1)), DIM)
    return [*bold, [between], *(line for lines in body for line in lines)]


def choose_widths(rows: Sequence[Sequence[Cell]], width: int) -> list[int] | None:
    """Return column widths that make the table fit, or None if the columns would become too narrow."""
    widths = [max(map(measure_cell, column)) for column in zip(*rows, strict=True)]
    room = width - GAP * (len(widths) - 1)
    while sum(widths) > room:
        widest = max(widths)
        if widest <= NARROWEST:
            return None
        # Narrow only the widest columns, and never below the width of the next widest column.
        count = widths.count(widest)
        target = max([NARROWEST, *(one for one in widths if one < widest)])
        target = max(target, widest - -(-(sum(widths) - room) // count))
        widths = [target if one == widest else one for one in widths]
    return widths


def measure_cell(cell: Cell) -> int:
    """Return the width of the widest line of a cell, in terminal columns."""
    return max(map(measure_line, wrap_spans(cell, sum(len(span.text) * 2 for span in cell) + 1)))


def layout_row(row: Sequence[Cell], widths: Sequence[int], is_right: Sequence[bool]) -> list[Line]:
    """Return the lines of a row."""
    columns = [wrap_spans(cell, wide, cuts_words=True) for cell, wide in zip(row, widths, strict=True)]
    lines = []
    for parts in zip_longest(*columns, fillvalue=()):
        line: Line = []
        missing = 0
        for part, wide, right in zip(parts, widths, is_right, strict=True):
            padding = wide - measure_line(part)
            line += [Span(" " * (missing + padding * right)), *part] if part else []
            missing = GAP + padding * (not right) if part else missing + GAP + wide
        lines.append(line)
    return lines


def list_cells(rows: Sequence[Sequence[Cell]], width: int) -> list[Line]:
    """Return the lines of a table where each cell starts on a new line, labelled with the header of its column."""
    lines: list[Line] = []
    for number, row in enumerate(rows[1:]):
        lines += [[]] if number else []
        for head, cell in zip(rows[0], row, strict=True):
            label = [Span(text, styles | BOLD) for text, styles in head]
            lines += wrap_spans([*label, Span(": " if label else ""), *cell], width)
    return lines
