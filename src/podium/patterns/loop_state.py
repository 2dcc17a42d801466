"""Store the state of a reflect loop, and check a judge's claim that the goal is met.

The best iteration is kept: its answer is delivered and, with `keep: best`, its files are restored.

The state is derived from the timeline, so a resumed run has the same state. A claim of completion needs evidence:
a worker has done some work, all members took part if the team requires it, and the checks pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..core.operation import Operation
from ..values.errors import Mistake, OutsideFailed, PodiumError
from ..values.event import Checked, Evaluated, ModelReplied, Noticed, SnapshotTaken, WorkRestored
from ..values.plain_text import truncate_text
from ..values.request import Part
from ..values.team_modes import ReflectOptions
from .member_tasks import TaskResult
from .stall import StallDetector
from .verdict import neutralise, strip_verdict, trend


class FinishedIteration(NamedTuple):
    """An iteration that was judged: its number, its score, and what it delivered."""

    number: int
    score: float
    synthesis: str
    parts: tuple[Part, ...]


REFUSED = 0.3
"""The score for work that a judge calls complete without evidence."""
LONGEST_WHY = 300


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
    """What the next plan is told about the last iteration."""
    why: str = ""
    """Why the last iteration did not meet the goal, in one line."""
    checked_commit: str = ""
    """The state of the files when the checks last ran or the loop started; empty if it is not known."""
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
    refused_checks: str = ""
    """Why the checks were not run, if they were not permitted. Another iteration cannot change that."""
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
    own: ReflectOptions,
    state: LoopState,
    verdict: JudgeVerdict,
    iteration: int,
    *,
    members: Iterable[str] = (),
) -> bool:
    """Check a verdict against the evidence, record the evaluation, and return whether the goal is met.

    The checks run if the iteration changed files, and whenever the judge says that the work is complete. Their outcome
    is what the next plan is based on.
    """
    checked = await _run_checks(op, own, state, iteration, is_claimed=verdict.claims)
    held_back = _find_missing_evidence(own, state, members, checked) if verdict.claims else ""
    has_failed = checked is not None and not checked.passed
    state.scores.append(REFUSED if held_back else min(verdict.score, REFUSED) if has_failed else verdict.score)
    rationale = neutralise(verdict.rationale) if strip_verdict(verdict.rationale) else "no reason given"
    state.evaluation = held_back or _join_outcome(checked, rationale)
    unclaimed = f"{verdict.by} did not call the work complete: {rationale}"
    state.why = _summarise(held_back or _join_outcome(checked, unclaimed))
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
            pauses=op.scope.timeline.index.pauses,
        )
    )
    if evaluated.pauses != state.pauses:
        state.pauses = evaluated.pauses
        state.stall.reset()
    return evaluated.is_complete


async def record_loop_start(op: Operation, own: ReflectOptions, state: LoopState) -> None:
    """Remember the state of the files before the first iteration, to know which iterations change them.

    If the run was resumed, that state is unknown.
    """
    if own.checks and not op.scope.timeline.find_events_below(op.scope.path, ModelReplied):
        state.checked_commit = await _commit_checkout(op)


def is_evaluated(op: Operation, iteration: int) -> bool:
    """Return whether the timeline already has the evaluation of this iteration."""
    found = op.scope.timeline.find_events_below(op.scope.path, Evaluated, operation=op.scope.path)
    return any(one.iteration == iteration for one in found)


def check_repetition(op: Operation, state: LoopState) -> None:
    """Check whether the new synthesis repeats an earlier one. The first repetition is recorded as a notice."""
    state.is_repeating = state.stall.check(state.synthesis)
    if state.is_repeating and not state.stall.is_stalled:
        op.scope.record(Noticed(text=f"{op.agent.name}: the results are repeating; one more repetition ends the loop."))


async def _run_checks(
    op: Operation, own: ReflectOptions, state: LoopState, iteration: int, *, is_claimed: bool
) -> Checked | None:
    """Run the team's checks and return the result, or None if there is nothing to check."""
    if not own.checks or not state.has_worked:
        return None
    if is_claimed:
        place = op.scope.next_child("checks")
    else:
        place = op.scope.child(f"checks:iteration-{iteration}")
        # An earlier release ran the checks only for a claim; a resumed run does not run them for finished iterations.
        if not place.has_outcome and (is_evaluated(op, iteration) or not await _has_changed(op, state)):
            return None
    commit = "" if place.has_outcome else await _commit_checkout(op)
    checked = await op.run_checks(own.checks, place)
    state.checked_commit, state.refused_checks = commit, checked.output if checked.refusal else ""
    return checked


async def _has_changed(op: Operation, state: LoopState) -> bool:
    """Return whether the files differ from those at the last check or, before the first check, at the start."""
    now = await _commit_checkout(op)
    if not state.checked_commit or not now or op.repository is None:
        return True
    return bool(await op.repository.read_diff(state.checked_commit, now))


async def _commit_checkout(op: Operation) -> str:
    """Commit the current state of the files. Return the commit, or "" if there is none."""
    try:
        return "" if op.repository is None else await op.repository.commit_checkout()
    except PodiumError:
        return ""


def _find_missing_evidence(
    own: ReflectOptions, state: LoopState, members: Iterable[str], checked: Checked | None
) -> str:
    """Return the reason to reject a claim of completion, or an empty string if the claim is accepted."""
    if not state.has_worked:
        return "no worker has done any work yet"
    failed = _describe_checks(checked) if checked is not None and not checked.passed else ""
    if not strip_verdict(state.synthesis):
        return f"the answer is empty; {failed}" if failed else "the answer is empty"
    missing = [name for name in members if name not in state.tried]
    if own.participation == "all" and missing:
        return f"no contribution yet from {', '.join(missing)}"
    return failed


def _describe_checks(checked: Checked) -> str:
    """Return the outcome of the checks, with the output of those that failed."""
    return "the checks passed" if checked.passed else f"the checks did not pass:\n{neutralise(checked.output)}"


def _join_outcome(checked: Checked | None, judged: str) -> str:
    """Return the outcome of the checks, if they ran, and what the judge says."""
    if checked is None:
        return judged
    return f"{_describe_checks(checked)}; {judged}" if checked.passed else f"{_describe_checks(checked)}\n\n{judged}"


def _summarise(why: str) -> str:
    """Return the reason in one line, for the error message of the loop."""
    return truncate_text(" ".join(why.split()), LONGEST_WHY)


def find_best_iteration(iterations: Sequence[FinishedIteration]) -> FinishedIteration | None:
    """Return the iteration with the highest score, preferring later ones, or None if none has an answer."""
    with_answer = [one for one in iterations if one.synthesis.strip()]
    return max(with_answer, key=lambda one: (one.score, one.number), default=None)


async def keep_iteration_files(op: Operation, iteration: int) -> None:
    """Take a snapshot of the files after an iteration, so that they can be restored. Record a notice if that fails."""
    try:
        await _take_snapshot(op, f"iteration-{iteration}")
    except (Mistake, OutsideFailed) as error:
        op.scope.record(Noticed(text=f"{op.agent.name}: the files of iteration {iteration} were not saved: {error}"))


async def restore_best_files(op: Operation, best: int, last: int) -> None:
    """Restore the files of the best iteration, if it is not the last. First take a snapshot of the current files."""
    repository, place = op.repository, op.scope.child("restore_best")
    kept = op.scope.child(f"snapshot:iteration-{best}").find_outcome(SnapshotTaken)
    if best == last or repository is None or kept is None or place.has_outcome:
        return
    commit = kept.commits[""]

    async def restore() -> WorkRestored:
        await repository.restore_checkout(commit)
        return WorkRestored(commit=commit, iteration=best)

    try:
        await _take_snapshot(op, "before-best")
        await place.step(restore, WorkRestored)
    except (Mistake, OutsideFailed) as error:
        op.scope.record(Noticed(text=f"{op.agent.name}: the files of iteration {best} were not restored: {error}"))


async def _take_snapshot(op: Operation, name: str) -> None:
    repository = op.repository
    if repository is None:
        return

    async def take() -> SnapshotTaken:
        commits = {"": await repository.commit_checkout()}
        await repository.keep_snapshot(name, commits)
        return SnapshotTaken(name=name, commits=commits)

    await op.scope.child(f"snapshot:{name}").step(take, SnapshotTaken)
