"""How a loop stands after each iteration, and whether a judge's word that the goal is met holds.

What is said here is on the timeline; running again gives the same standing. A claim to be complete
needs evidence: somebody worked, everybody took part where the team wants that, and the checks pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ..core.operation import Operation
from ..values.event import Evaluated, Noticed
from ..values.request import Part
from .stall import StallDetector
from .team_members import Options
from .verdict import neutralise, trend

REFUSED = 0.3
"""The score of work that was called complete and is not."""


class Verdict(NamedTuple):
    """What a judge said, before any evidence was looked at."""

    claims: bool
    score: float
    rationale: str
    by: str
    model: str = ""


@dataclass
class Standing:
    """The work so far, and what was said of it."""

    synthesis: str = ""
    evaluation: str = ""
    scores: list[float] = field(default_factory=list)
    tried: set[str] = field(default_factory=set)
    has_worked: bool = False
    skipped: list[str] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    """What was changed, or should be thought of, since the last plan."""
    parts: tuple[Part, ...] = ()
    is_repeating: bool = False
    stall: StallDetector = field(default_factory=StallDetector)
    pauses: int = 0

    @property
    def trend(self) -> str:
        return trend(self.scores)

    @property
    def drop(self) -> float:
        """By how much the last evaluation is below the one before."""
        return round(self.scores[-2] - self.scores[-1], 9) if len(self.scores) > 1 else 0.0


async def judged(
    op: Operation, own: Options, standing: Standing, verdict: Verdict, iteration: int, *, members: Iterable[str] = ()
) -> bool:
    """Whether the goal is met: the verdict, held against the evidence and recorded."""
    held_back = await _held_back(op, own, standing, members) if verdict.claims else ""
    standing.scores.append(REFUSED if held_back else verdict.score)
    standing.evaluation = held_back or verdict.rationale
    evaluated = op.scope.record(
        Evaluated(
            iteration=iteration,
            score=standing.scores[-1],
            rationale=verdict.rationale,
            by=verdict.by,
            model=verdict.model,
            trend=trend(standing.scores),
            is_complete=verdict.claims and not held_back,
            held_back=held_back,
            pauses=op.scope.timeline.pauses,
        )
    )
    if evaluated.pauses != standing.pauses:
        standing.pauses = evaluated.pauses
        standing.stall.reset()
    return evaluated.is_complete


def looked_for_repetition(op: Operation, standing: Standing) -> None:
    """Compare the new synthesis with those before it; the first repetition is warned of."""
    standing.is_repeating = standing.stall.check(standing.synthesis)
    if standing.is_repeating and not standing.stall.is_stalled:
        op.scope.record(Noticed(text=f"{op.agent.name}: the work repeats itself; once more, and the loop ends."))


async def _held_back(op: Operation, own: Options, standing: Standing, members: Iterable[str]) -> str:
    """Why a claim to be complete does not hold; empty where it does."""
    if not standing.has_worked:
        return "nobody has worked on it yet"
    missing = [name for name in members if name not in standing.tried]
    if own.participation == "all" and missing:
        return f"{', '.join(missing)} did not take part yet"
    if own.checks:
        checked = await op.checked(own.checks, op.scope.next("checks"))
        if not checked.passed:
            return f"the checks do not pass:\n{neutralise(checked.output)}"
    return ""
