"""Merge branches whose workers worked in several repositories.

Each repository has its own merge train. A branch is merged in all of its repositories or in none, and one approval
covers all repositories.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha1
from pathlib import Path

from ..runs.branch_forecast import read_current_branch
from ..runs.merge_candidates import MergeCandidate
from ..runs.worker_lookup import RepoContext
from ..values.errors import Mistake
from ..workspace.merging.integration_branch import remove_integration_branch
from ..workspace.merging.joint_move import TargetMove
from ..workspace.merging.overlap_forecast import Forecast
from .merge_run import CheckRunner, TrainOutcome, run_merge_train


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryMerge:
    """The branches to merge in one repository, and their target. `check` runs the repository's own checks."""

    context: RepoContext
    target: str
    candidates: tuple[MergeCandidate, ...]
    check: CheckRunner


@dataclass(frozen=True, slots=True, kw_only=True)
class JointOutcome:
    """The outcome of the merge train in each repository, the primary one first."""

    parts: tuple[tuple[RepositoryMerge, TrainOutcome], ...]

    @property
    def tree(self) -> str:
        """A hash of the merged trees of all repositories. An approval applies to this hash."""
        lines = [f"{part.context.root} {one.train.target} {one.train.tree}\n" for part, one in self.parts]
        return sha1("".join(lines).encode(), usedforsecurity=False).hexdigest()

    @property
    def moves(self) -> tuple[TargetMove, ...]:
        """The old and the new commit of each target that changes."""
        return tuple(
            TargetMove(
                root=part.context.root,
                target=one.train.target,
                old=one.train.base,
                new=one.train.commit,
                tree=one.train.tree,
            )
            for part, one in self.parts
            if one.train.commit != one.train.base
        )


OnForecast = Callable[[RepositoryMerge, Forecast], object]
"""Called with the forecast for each repository."""
MakeCheck = Callable[[RepoContext], CheckRunner]
"""Returns the check runner for a repository."""


async def find_repository_merges(
    context: RepoContext, candidates: Sequence[MergeCandidate], target: str, onto: str, make_check: MakeCheck
) -> list[RepositoryMerge]:
    """Return the merge to run in each repository that has work from these candidates.

    `target` is the target branch in the primary repository. In every other repository, the target branch is `onto` or,
    if `onto` is empty, the branch that is checked out there. Raise Mistake if a repository has no target branch, or if
    the target branch is one of the branches to merge.
    """
    merges = [RepositoryMerge(context=context, target=target, candidates=tuple(candidates), check=make_check(context))]
    for root in dict.fromkeys(work.root for one in candidates for work in one.also):
        other = RepoContext(Path(root), context.settings)
        bases = {one.branch: work.base for one in candidates for work in one.also if work.root == root}
        own_target = onto or await read_current_branch(other.repository)
        if own_target in bases:
            raise Mistake(
                f"{own_target} cannot be merged into itself in {root}; check out another branch there, or pass --onto"
            )
        own = tuple(
            replace(one, base=bases[one.branch] or own_target, notice="", resolves=None, also=())
            for one in candidates
            if one.branch in bases
        )
        merges.append(RepositoryMerge(context=other, target=own_target, candidates=own, check=make_check(other)))
    return merges


async def run_joint_merge(merges: Sequence[RepositoryMerge], *, on_forecast: OnForecast | None = None) -> JointOutcome:
    """Run the merge train of each repository. A branch that cannot be merged in one repository is merged in none.

    If only some of the trains leave out a branch, all trains run again without that branch. The target branches are not
    changed.
    """
    excluded: dict[str, dict[str, str]] = {merge.context.root: {} for merge in merges}
    is_first = True
    while True:
        outcomes = [
            await _run_train(merge, on_forecast if is_first else None, excluded[merge.context.root]) for merge in merges
        ]
        is_first = False
        joint = JointOutcome(parts=tuple(zip(merges, outcomes, strict=True)))
        if not (torn := list(_find_torn_branches(joint))):
            return joint
        for root, branch, why in torn:
            excluded[root][branch] = why
        await discard_results(joint)


async def _run_train(
    merge: RepositoryMerge, on_forecast: OnForecast | None, excluded: Mapping[str, str]
) -> TrainOutcome:
    return await run_merge_train(
        merge.context.repository,
        merge.candidates,
        merge.target,
        merge.check,
        on_forecast=None if on_forecast is None else partial(on_forecast, merge),
        excluded=excluded,
    )


def _find_torn_branches(outcome: JointOutcome) -> Iterator[tuple[str, str, str]]:
    """Find branches that one repository merges and another leaves out.

    Yield the root of the repository that merges the branch, the branch, and why the other repository leaves it out.
    """
    reasons = {
        left.branch: f"it cannot be merged in {part.context.root}: {left.reason}: {left.why}"
        for part, one in reversed(outcome.parts)
        for left in one.train.left_out
    }
    for part, one in outcome.parts:
        for merged in one.train.merged:
            if merged.branch in reasons:
                yield part.context.root, merged.branch, reasons[merged.branch]


async def discard_results(outcome: JointOutcome) -> None:
    """Remove the integration branches of these trains, except branches that are in use."""
    for part, one in outcome.parts:
        if one.train.ref is not None:
            await remove_integration_branch(part.context.repository, one.train.ref, one.train.commit)
