"""Store the state of a reflect loop, and check a judge's claim that the goal is met.

The state is derived from the timeline, so a resumed run has the same state. A claim of completion needs evidence:
a worker has done some work, all members took part if the team requires it, and the checks pass.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ..core.operation import Operation
from ..values.event import Evaluated, Noticed
from ..values.request import Part
from .best_iteration import FinishedIteration
from .member_tasks import TaskResult, TeamOptions
from .stall import StallDetector
from .verdict import neutralise, strip_verdict, trend

REFUSED = 0.3
"""The score for work that a judge calls complete without evidence."""


class JudgeVerdict(NamedTuple):
    """A judge's verdict, before it is checked against the evidence."""

    claims: bool
    score: float
    rationale: str
    by: str
    model: str = ""


@dataclass
class LoopState:
    """The state of a reflect loop: the current work, and the evaluations of all iterations."""

    synthesis: str = ""
    evaluation: str = ""
    scores: list[float] = field(default_factory=list)
    tried: set[str] = field(default_factory=set)
    has_worked: bool = False
    failed: list[TaskResult] = field(default_factory=list)
    """The results of the last plan, if none of its workers succeeded."""
    skipped: list[str] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)
    """Adjustments that the next plan should take into account."""
    parts: tuple[Part, ...] = ()
    is_repeating: bool = False
    stall: StallDetector = field(default_factory=StallDetector)
    pauses: int = 0
    finished: list[FinishedIteration] = field(default_factory=list)
    """The iterations that were judged and did not meet the goal."""

    def finish_iteration(self, number: int) -> None:
        """Record the result and the score of an iteration."""
        score = self.scores[-1] if self.scores else 0.0
        self.finished.append(FinishedIteration(number, score, self.synthesis, self.parts))

    @property
    def trend(self) -> str:
        return trend(self.scores)

    @property
    def score_drop(self) -> float:
        """How much lower the last score is than the one before it."""
        return round(self.scores[-2] - self.scores[-1], 9) if len(self.scores) > 1 else 0.0


async def evaluate_verdict(
    op: Operation,
    own: TeamOptions,
    state: LoopState,
    verdict: JudgeVerdict,
    iteration: int,
    *,
    members: Iterable[str] = (),
) -> bool:
    """Check a verdict against the evidence, record the evaluation, and return whether the goal is met."""
    held_back = await _find_missing_evidence(op, own, state, members) if verdict.claims else ""
    state.scores.append(REFUSED if held_back else verdict.score)
    state.evaluation = held_back or verdict.rationale
    evaluated = op.scope.record(
        Evaluated(
            iteration=iteration,
            score=state.scores[-1],
            rationale=verdict.rationale,
            by=verdict.by,
            model=verdict.model,
            trend=trend(state.scores),
            is_complete=verdict.claims and not held_back,
            held_back=held_back,
            pauses=op.scope.timeline.pauses,
        )
    )
    if evaluated.pauses != state.pauses:
        state.pauses = evaluated.pauses
        state.stall.reset()
    return evaluated.is_complete


def check_repetition(op: Operation, state: LoopState) -> None:
    """Check whether the new synthesis repeats an earlier one. The first repetition is recorded as a notice."""
    state.is_repeating = state.stall.check(state.synthesis)
    if state.is_repeating and not state.stall.is_stalled:
        op.scope.record(Noticed(text=f"{op.agent.name}: the results are repeating; one more repetition ends the loop."))


async def _find_missing_evidence(op: Operation, own: TeamOptions, state: LoopState, members: Iterable[str]) -> str:
    """Return the reason to reject a claim of completion, or an empty string if the claim is accepted."""
    if not state.has_worked:
        return "no worker has done any work yet"
    if not strip_verdict(state.synthesis):
        return "the answer is empty"
    missing = [name for name in members if name not in state.tried]
    if own.participation == "all" and missing:
        return f"no contribution yet from {', '.join(missing)}"
    if own.checks:
        checked = await op.run_checks(own.checks, op.scope.next_child("checks"))
        if not checked.passed:
            return f"the checks did not pass:\n{neutralise(checked.output)}"
    return ""
