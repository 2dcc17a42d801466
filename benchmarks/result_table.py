"""Format the lines as a table for people."""

from __future__ import annotations

from collections.abc import Sequence

from .harness import LIMIT, OURS, Spread
from .result_line import Line, Unit


def format_table(lines: Sequence[Line], peers: Sequence[str]) -> str:
    """Format one row for each line, with quartiles beside the figures and the peers' ratios to the limit."""
    head = ["row", "what", "ours", "limit", "ratio", "goal", "met", *peers]
    rows = [head, *([*_format_columns(line), *(_format_peer(line, name) for name in peers)] for line in lines)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _format_columns(line: Line) -> list[str]:
    return [
        line.row,
        line.what,
        _format_spread(line.ours, line.unit) + _format_failed(line, OURS),
        _format_spread(line.figures[LIMIT], line.unit) + _format_failed(line, LIMIT) if LIMIT in line.figures else "",
        _format_ratio(line, OURS),
        " and ".join(map(str, line.goals)),
        {True: "yes", False: "NO", None: ""}[line.is_met],
    ]


def _format_peer(line: Line, name: str) -> str:
    if name not in line.figures:
        return line.missing.get(name, "")
    return (
        f"{_format_number(line.figures[name].median)} {line.unit.name} "
        f"{_format_ratio(line, name)}{_format_failed(line, name)}"
    )


def _format_spread(spread: Spread, unit: Unit) -> str:
    return f"{_format_number(spread.median)} ({_format_number(spread.low)}–{_format_number(spread.high)}) {unit.name}"


def _format_ratio(line: Line, name: str) -> str:
    ratio = line.ratio(name)
    return "" if ratio is None else f"{ratio:.{2 if ratio < 10 else 1}f}×"


def _format_failed(line: Line, name: str) -> str:
    return f", {line.failed[name]} FAILED" if line.failed.get(name) else ""


def _format_number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
