"""Merge workers' branches: choose them, build and check the result, and move the target to it.

These are three steps, because somebody looks at the result before the target moves. If a worker worked in several
repositories, each repository has its own merge train. A branch is merged in all of its repositories or in none, and one
approval covers all repositories.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha1
from pathlib import Path

from anyio import to_thread

from ...files.settings import Settings
from ...tools.shell import SHELL
from ...values.actor import Actor, act
from ...values.errors import Mistake
from ...views.worker_state import WorkerState
from ...workspace.git.repository import read_git_output
from ...workspace.git.revision import branch_tip
from ...workspace.git.snapshot import resolve_commit
from ...workspace.merging.fast_forward import fast_forward
from ...workspace.merging.joint_move import TargetMove, finish_joint_moves, move_together
from ...workspace.merging.overlap_forecast import Forecast
from ...workspace.merging.partial_commit import ChosenFile
from ...workspace.merging.trial_merge import (
    list_integration_branches,
    remove_integration_branch,
    remove_superseded_branches,
)
from ..queries.worker_lookup import RepoContext
from .branch_forecast import read_current_branch
from .merge_candidates import (
    MergeCandidate,
    describe_missing_work,
    find_merge_candidates,
    require_single_repository,
)
from .merge_run import CheckRunner, Checks, TrainOutcome, run_merge_train
from .partial_merge import choose_files, choose_shown_changes
from .pushed_work import RefCleanup, remove_finished_refs

Notice = Callable[[str], object]
"""Called with a sentence for the person who merges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRequest:
    """The branches to merge. If `branches` is empty, all results of teams and all workers that succeeded are merged.

    If `onto` is empty, the target is the branch that is checked out. With `only`, one branch is merged, and only its
    changes in these files and folders. `single_for` names a feature that supports only one repository.
    """

    branches: tuple[str, ...] = ()
    onto: str = ""
    only: tuple[str, ...] = ()
    single_for: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryMerge:
    """The branches to merge in one repository, and their target."""

    context: RepoContext
    target: str
    candidates: tuple[MergeCandidate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePlan:
    """The merge in each repository, the primary one first. There is none if no branch can be merged."""

    context: RepoContext
    target: str
    merges: tuple[RepositoryMerge, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeResult:
    """The commit `commit` with the tree `tree`, to which a merge moves the target of a repository from `base`.

    `ref` is the integration branch that is no longer needed then, and `branches` are the merged branches.
    """

    context: RepoContext
    target: str
    base: str
    commit: str
    tree: str
    ref: str | None = None
    branches: frozenset[str] = frozenset()

    @property
    def move(self) -> TargetMove:
        return TargetMove(root=self.context.root, target=self.target, old=self.base, new=self.commit, tree=self.tree)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedMerge:
    """The outcome of the merge train in each repository, the primary one first."""

    parts: tuple[tuple[RepositoryMerge, TrainOutcome], ...]

    @property
    def tree(self) -> str:
        """A hash of the merged trees of all repositories. An approval applies to this hash."""
        lines = [f"{part.context.root} {one.train.target} {one.train.tree}\n" for part, one in self.parts]
        return sha1("".join(lines).encode(), usedforsecurity=False).hexdigest()

    @property
    def results(self) -> tuple[MergeResult, ...]:
        """The result in each repository."""
        return tuple(
            MergeResult(
                context=part.context,
                target=one.train.target,
                base=one.train.base,
                commit=one.train.commit,
                tree=one.train.tree,
                ref=one.train.ref,
                branches=frozenset(merged.branch for merged in one.train.merged),
            )
            for part, one in self.parts
        )

    @property
    def moves(self) -> tuple[TargetMove, ...]:
        """The old and the new commit of each target that changes."""
        return _list_moves(self.results)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedMerge:
    """The targets that moved, and what is left: remote refs that were kept, and each repository's other branches.

    `left` lists the remaining integration branches of each repository.
    """

    moves: tuple[TargetMove, ...]
    kept_refs: tuple[RefCleanup, ...]
    left: list[list[str]]


OnForecast = Callable[[RepositoryMerge, Forecast], object]
"""Called with the forecast for each repository."""


async def plan_merge(context: RepoContext, request: MergeRequest, *, notice: Notice) -> MergePlan:
    """Choose the branches to merge and, in each repository that has work from them, the target.

    Moves that an interrupted merge has begun are finished first. `notice` is called with what this did, and with the
    reason for each branch that is skipped or replaced. Raise Mistake if a given branch cannot be merged.
    """
    await finish_interrupted_moves(context.settings, notice=notice)
    target = request.onto or await read_current_branch(context.repository)
    if request.only:
        candidates = [await choose_files(context, request.branches[0], target, request.only)]
    else:
        candidates = await find_merge_candidates(context, request.branches, target, notice=notice)
    _notice_candidates(candidates, notice)
    if request.branches or not candidates:
        for sentence in await to_thread.run_sync(describe_missing_work, context, request.branches):
            notice(sentence)
    if request.single_for:
        require_single_repository(candidates, request.single_for)
    merges = await _find_repository_merges(context, candidates, target, request.onto) if candidates else []
    return MergePlan(context=context, target=target, merges=tuple(merges))


async def plan_partial_merge(
    context: RepoContext,
    worker: WorkerState,
    chosen: Sequence[ChosenFile],
    *,
    onto: str,
    shown: str,
    notice: Notice,
) -> MergePlan:
    """Plan to merge only the changes that somebody chose in the diff of a worker. `shown` is the digest of that diff.

    Raise Mistake if the branch's diff has a different digest now, or if the worker has no branch of its own.
    """
    await finish_interrupted_moves(context.settings, notice=notice)
    target = onto or await read_current_branch(context.repository)
    candidate = await choose_shown_changes(context, worker, target, chosen, shown=shown)
    _notice_candidates([candidate], notice)
    merge = RepositoryMerge(context=context, target=target, candidates=(candidate,))
    return MergePlan(context=context, target=target, merges=(merge,))


async def finish_interrupted_moves(settings: Settings, *, notice: Notice) -> None:
    """Complete or undo merges that were interrupted while they moved several targets. `notice` is told the results."""
    for sentence in await finish_joint_moves(settings.home, settings.store):
        notice(sentence)


def select_checks(settings: Settings, commands: Sequence[str]) -> Checks:
    """Return the checks in the settings and these commands. The name of a check in the settings stands for it."""
    added = {text: (SHELL, "-c", text) for text in commands if text not in settings.checks}
    return {**settings.checks, **added}


@act("act")
async def build_merge(
    plan: MergePlan,
    commands: Sequence[str],
    *,
    by: Actor,
    notice: Notice,
    on_forecast: OnForecast | None = None,
    needs_branch: bool = True,
) -> CheckedMerge:
    """Merge the branches of a plan into new integration branches, and run the checks and `commands` after each merge.

    A branch that cannot be merged in one repository is merged in none: if only some of the trains leave out a branch,
    all trains run again without that branch. No target moves. `on_forecast` is called with the forecast for each
    repository. If `needs_branch` is False, no integration branch is created.
    """
    excluded: dict[str, dict[str, str]] = {merge.context.root: {} for merge in plan.merges}
    train = partial(_run_train, commands=commands, by=by, notice=notice, needs_branch=needs_branch)
    is_first = True
    while True:
        outcomes = [
            await train(merge, on_forecast if is_first else None, excluded[merge.context.root]) for merge in plan.merges
        ]
        is_first = False
        checked = CheckedMerge(parts=tuple(zip(plan.merges, outcomes, strict=True)))
        if not (torn := list(_find_torn_branches(checked))):
            return checked
        for root, branch, why in torn:
            excluded[root][branch] = why
        await _remove_branches(checked.results)


@act("approve")
async def apply_merge(results: Sequence[MergeResult], *, by: Actor) -> AppliedMerge:
    """Move the targets to their results, all of them or none, and remove what is no longer needed then.

    This includes the integration branches and the remote refs of merged workers. Raise Mistake if a target or a tree
    has changed since the merge was built, or if a target cannot be moved safely.
    """
    moves = _list_moves(results)
    primary = results[0].context
    if len(results) == 1:
        one = results[0]
        await fast_forward(
            primary.repository, one.target, commit=one.commit, expected_tree=one.tree, expected_old=one.base, by=by
        )
    elif moves:
        await move_together(primary.settings.home, primary.store, moves, by=by)
    await _remove_branches(results)
    kept = await _remove_remote_refs(results[0]) if moves else ()
    return AppliedMerge(moves=moves, kept_refs=kept, left=await tidy_results(results))


async def find_reviewed_result(context: RepoContext, *, target: str, base: str, commit: str, tree: str) -> MergeResult:
    """Return the result of a merge that was built earlier and reviewed since. Raise Mistake if a commit is missing.

    The merged branches are those of the workers whose last commit is in the result, but not in the target.
    """
    new, old = await resolve_commit(context.repository, commit), await resolve_commit(context.repository, base)
    merged = set((await read_git_output(context.repository, "rev-list", new, f"^{old}")).split())
    workers = await to_thread.run_sync(context.load_workers)
    return MergeResult(
        context=context,
        target=target,
        base=base,
        commit=commit,
        tree=tree,
        branches=frozenset(one.name for one in workers if one.commit in merged),
    )


async def discard_merge(results: Sequence[MergeResult]) -> list[list[str]]:
    """Remove the integration branches of results that were rejected, unless they are in use.

    Return the remaining integration branches of each repository.
    """
    await _remove_branches(results)
    return [await tidy_branches(one.context, one.base, one.ref) for one in results]


async def tidy_results(results: Sequence[MergeResult]) -> list[list[str]]:
    """Remove the integration branches that these results replace. Return the remaining ones of each repository."""
    return [await tidy_branches(one.context, one.commit, one.ref) for one in results]


async def tidy_target(plan: MergePlan) -> list[str]:
    """Remove the integration branches whose content the target of a plan has, and return the remaining ones."""
    return await tidy_branches(plan.context, await branch_tip(plan.context.repository, plan.target))


async def tidy_branches(context: RepoContext, within: str, except_ref: str | None = None) -> list[str]:
    """Remove the integration branches whose content is in the commit `within`, and return the remaining ones.

    The branch with the ref `except_ref` is kept.
    """
    await remove_superseded_branches(context.repository, within, except_ref=except_ref)
    return [one.branch for one in await list_integration_branches(context.repository)]


def format_kept_ref(ref: RefCleanup) -> str:
    """Return a sentence about a remote ref that was kept."""
    return f"the refs of {ref.branch} on {ref.remote} were kept: {ref.why}"


def _list_moves(results: Sequence[MergeResult]) -> tuple[TargetMove, ...]:
    """Return the moves of the targets that change."""
    return tuple(one.move for one in results if one.commit != one.base)


def _notice_candidates(candidates: Sequence[MergeCandidate], notice: Notice) -> None:
    for one in candidates:
        if one.notice:
            notice(one.notice)


async def _find_repository_merges(
    context: RepoContext, candidates: Sequence[MergeCandidate], target: str, onto: str
) -> list[RepositoryMerge]:
    """Return the merge to run in each repository that has work from these candidates.

    `target` is the target branch in the primary repository. In every other repository, the target branch is `onto` or,
    if `onto` is empty, the branch that is checked out there. Raise Mistake if a repository has no target branch, or if
    the target branch is one of the branches to merge.
    """
    merges = [RepositoryMerge(context=context, target=target, candidates=tuple(candidates))]
    for root in dict.fromkeys(work.root for one in candidates for work in one.elsewhere):
        other = RepoContext(Path(root), context.settings)
        bases = {one.branch: work.base for one in candidates for work in one.elsewhere if work.root == root}
        own_target = onto or await read_current_branch(other.repository)
        if own_target in bases:
            raise Mistake(
                f"{own_target} cannot be merged into itself in {root}; check out another branch there, or pass --onto"
            )
        own = tuple(
            replace(one, base=bases[one.branch] or own_target, notice="", resolves=None, elsewhere=())
            for one in candidates
            if one.branch in bases
        )
        merges.append(RepositoryMerge(context=other, target=own_target, candidates=own))
    return merges


async def _run_train(
    merge: RepositoryMerge,
    on_forecast: OnForecast | None,
    excluded: Mapping[str, str],
    *,
    commands: Sequence[str],
    by: Actor,
    notice: Notice,
    needs_branch: bool,
) -> TrainOutcome:
    settings = merge.context.settings
    return await run_merge_train(
        merge.context.repository,
        merge.candidates,
        merge.target,
        CheckRunner(settings, select_checks(settings, commands), notice),
        by=by,
        on_forecast=None if on_forecast is None else partial(on_forecast, merge),
        excluded=excluded,
        needs_branch=needs_branch,
    )


def _find_torn_branches(outcome: CheckedMerge) -> Iterator[tuple[str, str, str]]:
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


async def _remove_branches(results: Sequence[MergeResult]) -> None:
    """Remove the integration branches of these results, except branches that are in use."""
    for one in results:
        if one.ref is not None:
            await remove_integration_branch(one.context.repository, one.ref, one.commit)


async def _remove_remote_refs(result: MergeResult) -> tuple[RefCleanup, ...]:
    """Delete the remote refs of merged workers, and return those that were kept."""
    found = await remove_finished_refs(result.context, branches=result.branches, target=result.commit)
    return tuple(one for one in found if one.act == "kept")
