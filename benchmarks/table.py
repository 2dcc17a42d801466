"""The lines as a table for people."""

from __future__ import annotations

from collections.abc import Sequence

from .harness import LIMIT, OURS, Spread
from .line import Line, Unit


def table(lines: Sequence[Line], peers: Sequence[str]) -> str:
    """One line each. Figures have their quartiles beside them, and peers their ratio to the limit."""
    head = ["row", "what", "ours", "limit", "ratio", "goal", "met", *peers]
    rows = [head, *([*_columns(line), *(_peer(line, name) for name in peers)] for line in lines)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _columns(line: Line) -> list[str]:
    return [
        line.row,
        line.what,
        _figure(line.ours, line.unit) + _failed(line, OURS),
        _figure(line.figures[LIMIT], line.unit) + _failed(line, LIMIT) if LIMIT in line.figures else "",
        _ratio(line, OURS),
        " and ".join(map(str, line.goals)),
        {True: "yes", False: "NO", None: ""}[line.is_met],
    ]


def _peer(line: Line, name: str) -> str:
    if name not in line.figures:
        return line.missing.get(name, "")
    return f"{_number(line.figures[name].median)} {line.unit.name} {_ratio(line, name)}{_failed(line, name)}"


def _figure(spread: Spread, unit: Unit) -> str:
    return f"{_number(spread.median)} ({_number(spread.low)}–{_number(spread.high)}) {unit.name}"


def _ratio(line: Line, name: str) -> str:
    ratio = line.ratio(name)
    return "" if ratio is None else f"{ratio:.{2 if ratio < 10 else 1}f}×"


def _failed(line: Line, name: str) -> str:
    return f", {line.failed[name]} FAILED" if line.failed.get(name) else ""


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
