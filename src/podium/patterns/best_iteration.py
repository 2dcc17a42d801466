"""Keep the best iteration of a reflect loop: deliver its answer and, with `keep: best`, restore its files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..core.operation import Operation
from ..values.errors import Mistake, OutsideFailed
from ..values.event import Noticed, SnapshotTaken, WorkRestored
from ..values.request import Part


class FinishedIteration(NamedTuple):
    """An iteration that was judged: its number, its score, and what it delivered."""

    number: int
    score: float
    synthesis: str
    parts: tuple[Part, ...]


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
