"""A line of the table: one of Podium's figures beside the limit's and the peers', and the goal for it."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct, to_builtins

from .harness import LIMIT, OURS, Bench, Sample, Spread

Measure = Literal["wall", "cpu", "memory"]


class Unit(Struct, frozen=True):
    """How a figure is shown: multiplied by `factor`, or as a number per second."""

    name: str
    factor: float = 1.0
    is_rate: bool = False

    def convert(self, value: float) -> float:
        return self.factor / value if self.is_rate else self.factor * value


MILLISECONDS = Unit("ms", 1e3)
KILOBYTES = Unit("kB", 1e-3)
PER_SECOND = Unit("/s", 1.0, True)


class Goal(Struct, frozen=True):
    """A goal: a maximum or minimum for a figure, or for its ratio to the limit."""

    kind: Literal["ratio", "figure"]
    bound: float
    is_least: bool = False

    def is_met(self, ratio: float | None, figure: float) -> bool:
        value = figure if self.kind == "figure" else ratio
        return value is not None and (value >= self.bound if self.is_least else value <= self.bound)

    def __str__(self) -> str:
        return f"{'≥' if self.is_least else '≤'} {self.bound:,g}{'×' if self.kind == 'ratio' else ''}"


def max_ratio(ratio: float) -> Goal:
    """Make a goal for the highest acceptable ratio to the limit."""
    return Goal("ratio", ratio)


class Line(Struct, frozen=True, kw_only=True):
    """Figures in one unit. A ratio says how many times as long, or as much, as the limit a program takes."""

    row: str
    what: str
    unit: Unit
    figures: dict[str, Spread]
    goals: tuple[Goal, ...] = ()
    failed: dict[str, int] = {}
    missing: dict[str, str] = {}

    @property
    def ours(self) -> Spread:
        return self.figures[OURS]

    def ratio(self, name: str = OURS) -> float | None:
        if LIMIT not in self.figures:
            return None
        one, limit = self.figures[name].median, self.figures[LIMIT].median
        return limit / one if self.unit.is_rate else one / limit

    @property
    def is_met(self) -> bool | None:
        """Whether all goals are met; None if there are none."""
        return all(goal.is_met(self.ratio(), self.ours.median) for goal in self.goals) if self.goals else None

    @property
    def has_failed(self) -> bool:
        """Whether one of our calls or of the limit's calls failed. Failed calls of peers are just another figure."""
        return any(self.failed.get(name) for name in (OURS, LIMIT))

    def as_document(self) -> dict[str, Any]:
        """Return the line as plain values, with the values derived from its figures."""
        ratios = {name: self.ratio(name) for name in self.figures}
        plain: dict[str, Any] = to_builtins(self)
        goals = [str(goal) for goal in self.goals]
        return plain | {"unit": self.unit.name, "ratios": ratios, "goals": goals, "met": self.is_met}


def make_line(
    bench: Bench,
    taken: Mapping[str, Sequence[Sample]],
    *,
    row: str,
    what: str,
    measure: Measure = "wall",
    unit: Unit = MILLISECONDS,
    goals: Sequence[Goal] = (),
    has_peers: bool = False,
) -> Line:
    """Make a line from these samples."""
    figures = {
        name: Spread.from_values([unit.convert(getattr(sample, measure)) for sample in samples])
        for name, samples in taken.items()
    }
    failed = {name: round(sum(sample.failed for sample in samples)) for name, samples in taken.items()}
    return Line(
        row=row,
        what=what,
        unit=unit,
        figures=figures,
        goals=tuple(goals),
        failed={name: count for name, count in failed.items() if count},
        missing=_find_missing_peers(bench, taken) if has_peers else {},
    )


def _find_missing_peers(bench: Bench, taken: Container[str]) -> dict[str, str]:
    """Return the peers without figures, and why they have none."""
    broken = {name: "broke" for name in bench.peers if name not in taken}
    return dict.fromkeys(bench.missing, "not installed") | broken
