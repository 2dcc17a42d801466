"""Select and order the branches for a merge train."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from anyio import to_thread

from ...store.reader import StoreReader
from ...store.worktree_ledger import Ledger
from ...values.errors import Mistake, NoSuchRun
from ...values.store_address import StoreAddress
from ...values.worker_task import WorkerTask
from ...views.worker_state import CheckoutWork, WorkerState
from ...workspace.git.repository import Repository
from ...workspace.git.revision import SHORT, branch_tip, branch_tips, contains_commit
from ...workspace.merging.resolution_commit import (
    ResolutionStart,
    filter_resolution_starts,
    find_unresolved_files,
    is_resolution_of,
)
from ..queries.worker_lookup import RepoContext, load_readable_states
from .pushed_work import fetch_branch, fetch_branches
from .team_branches import TeamResult, TeamRuns, list_result_branches, select_mergeable


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeCandidate:
    """A branch to merge, with its base, the branches that it builds on (`after`), and a notice for the user, if any.

    `run` is the run of the worker or team whose work is on the branch. If the branch's worker was started to resolve a
    conflict, `resolves` is that conflict. If only a part of the branch is merged, `part` is that part. `elsewhere` is
    the worker's work in other repositories, in which the branch is merged together with this one.
    """

    branch: str
    base: str
    run: str = ""
    after: tuple[str, ...] = ()
    notice: str = ""
    resolves: ResolutionStart | None = None
    part: BranchPart | None = None
    elsewhere: tuple[CheckoutWork, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchPart:
    """A part of a branch's changes.

    `source` is the commit on the branch that the part was taken from, and `commit` is a commit with only that part.
    """

    source: str
    commit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolver:
    """A worker that was started to resolve a conflict."""

    worker: WorkerState
    resolves: ResolutionStart


async def find_resolvers(context: RepoContext) -> dict[str, Resolver]:
    """Return the workers that were started to resolve conflicts, keyed by branch, oldest first."""
    workers = {worker.worker_task.branch: worker for worker in context.load_workers() if worker.worker_task.base}
    starts_by_base = await filter_resolution_starts(
        context.repository, (worker.worker_task.base for worker in workers.values())
    )
    return {
        branch: Resolver(worker=worker, resolves=starts_by_base[worker.worker_task.base])
        for branch, worker in workers.items()
        if worker.worker_task.base in starts_by_base
    }


async def find_merge_candidates(
    context: RepoContext, names: Sequence[str], target: str, *, notice: Callable[[str], object]
) -> list[MergeCandidate]:
    """Return the branches to merge: the branches in `names` or, if there are none, all branches that are ready.

    The branches of workers on other machines are fetched first. `notice` is called with the reason for each branch
    that is skipped or replaced. Raise Mistake if a branch in `names` cannot be merged.
    """
    newest = await to_thread.run_sync(_find_newest_workers, context)
    if not names:
        ready = [worker for worker in newest.values() if worker.state == "complete"]
        await fetch_branches(context, ready, notice=notice)
        return await list_merge_candidates(context, target, notice=notice)
    for worker in [newest[name] for name in names if name in newest]:
        await fetch_branch(context, worker, notice=notice)
    resolvers_by_branch = await find_resolvers(context)
    candidates = [await _find_named_candidate(context, name, target, resolvers_by_branch) for name in names]
    return await _order_candidates(context.repository, candidates, notice)


async def list_merge_candidates(
    context: RepoContext, target: str, *, notice: Callable[[str], object]
) -> list[MergeCandidate]:
    """Return all branches in this repository that are ready to be merged. Nothing is fetched.

    `notice` is called with the reason for each branch that is skipped or replaced.
    """
    resolvers_by_branch = await find_resolvers(context)
    candidates = await _find_ready_candidates(context, target, resolvers_by_branch, notice)
    return await _order_candidates(context.repository, candidates, notice)


def find_independent_branches(context: RepoContext) -> dict[str, str]:
    """Map the branch of each worker with a checkout to its base, unless it is only a part of a team's work."""
    workers = context.load_workers()
    parts = TeamRuns(context.store).find_parts(workers)
    return {
        one.worker_task.branch: one.base
        for one in workers
        if one.base and one.worker_task.has_checkout and one.worker_task.branch not in parts
    }


async def _find_named_candidate(
    context: RepoContext, name: str, target: str, resolvers_by_branch: Mapping[str, Resolver]
) -> MergeCandidate:
    """Return the candidate for a branch that the user named, even if it is not a worker's branch."""
    if name == target:
        raise Mistake(f"{name} cannot be merged onto itself; choose another target with --onto TARGET")
    await _must_be_merged_here(context, name)
    newest = _find_newest_workers(context)
    team_runs = TeamRuns(context.store)
    tip = (await branch_tips(context.repository, [name])).get(name)
    if name not in newest and tip is not None:
        result = await to_thread.run_sync(team_runs.find_result, name)
        notice = "not a worker's branch; merging its current commit" if result is None else result.describe(tip)
        run = "" if result is None else result.run
        return MergeCandidate(branch=name, base=target, run=run, notice=f"{name}: {notice}")
    worker = newest.get(name) or context.load_worker(name)
    part = (await to_thread.run_sync(team_runs.find_parts, newest.values())).get(worker.worker_task.branch)
    notice = "" if part is None else f"{worker.name}: {part}"
    if worker.state != "complete":
        what = "did not succeed" if worker.is_over else "has not ended"
        more = f"{worker.name}: the worker on this branch {what} ({worker.state}); merging the branch's current commit"
        notice = f"{notice}\n{more}" if notice else more
    return await _make_candidate(context, worker, target, resolvers_by_branch, notice=notice)


async def _must_be_merged_here(context: RepoContext, name: str) -> None:
    """Raise Mistake if a branch belongs to a worker of another repository and must be merged from that repository."""
    run = await Ledger(context.store).find_last_run(context.repository.common_dir, name)
    task = await to_thread.run_sync(_read_worker_task, context.store, run) if run else None
    if task is not None and task.branch == name and task.root != context.root and context.root in task.roots:
        raise Mistake(
            f"{name} belongs to a worker with branches in several repositories, which must be merged together; use: "
            f"podium merge {name} --repo {shlex.quote(task.root)}"
        )


def _read_worker_task(store: StoreAddress, run: str) -> WorkerTask | None:
    """Return the task of a worker's run, or None if the run is not a worker's or was deleted."""
    try:
        with StoreReader(store) as reader:
            return reader.read_summary(run).started.errand
    except NoSuchRun:
        return None


def require_single_repository(candidates: Iterable[MergeCandidate], what: str) -> None:
    """Raise Mistake if a candidate has changes in several repositories.

    `what` is the feature that supports only one repository.
    """
    for one in candidates:
        if one.elsewhere:
            others = ", ".join(work.name for work in one.elsewhere)
            raise Mistake(
                f"{one.branch} also has changes in {others}, but {what} supports only one repository; use: "
                f"podium merge {one.branch}"
            )


async def _find_ready_candidates(
    context: RepoContext, target: str, resolvers_by_branch: Mapping[str, Resolver], notice: Callable[[str], object]
) -> list[MergeCandidate]:
    """Return the branches that may be merged and are not merged into the target yet.

    These are the results of teams, and the branches whose newest worker succeeded and that are not only a part of a
    team's work.
    """
    newest = await to_thread.run_sync(_find_newest_workers, context)
    team_runs = TeamRuns(context.store)
    parts = await to_thread.run_sync(team_runs.find_parts, newest.values())
    tips_by_branch = await branch_tips(context.repository, newest)
    target_tip = await branch_tip(context.repository, target)
    results = await _find_ready_results(context, team_runs, target_tip, notice)
    ready: list[MergeCandidate] = []
    for branch, worker in newest.items():
        if (
            branch == target
            or branch not in tips_by_branch
            or await contains_commit(context.repository, target_tip, tips_by_branch[branch])
        ):
            continue
        resolver = resolvers_by_branch.get(branch)
        if resolver is not None and await contains_commit(context.repository, target_tip, resolver.resolves.theirs):
            continue  # the conflict was resolved in another way
        if (part := parts.get(branch)) is not None:
            merged = results.get(part.result)
            if merged is None or not await contains_commit(context.repository, merged[1], tips_by_branch[branch]):
                notice(f"{branch}: skipped, because {part}")
        elif worker.state != "complete":
            notice(
                f"{branch}: skipped, because the worker on this branch has not completed its task ({worker.state}); "
                f"merge the branch anyway with: podium merge {branch}"
            )
        elif other := await _find_resolving_branch(
            context.repository, tips_by_branch[branch], resolver, resolvers_by_branch
        ):
            notice(f"{branch}: skipped, because a worker is still resolving its conflict on {other}")
        elif resolver is not None and (
            files := await find_unresolved_files(context.repository, tips_by_branch[branch], resolver.resolves)
        ):
            notice(f"{branch}: skipped, because conflict markers are left in {', '.join(files)}")
        else:
            ready.append(await _make_candidate(context, worker, target, resolvers_by_branch))
    for result, tip in results.values():
        ready.append(
            MergeCandidate(
                branch=result.branch,
                base=target,
                run=result.run,
                notice=f"{result.branch}: {result.describe(tip)}",
            )
        )
    return ready


async def _find_ready_results(
    context: RepoContext, team_runs: TeamRuns, target_tip: str, notice: Callable[[str], object]
) -> dict[str, tuple[TeamResult, str]]:
    """Return the teams' results that may be merged and are not merged yet, each with its branch's tip, by branch.

    `notice` is called with the reason for each result that is skipped.
    """
    names = await list_result_branches(context.repository)
    tips_by_branch = await branch_tips(context.repository, names)
    unmerged = [
        name for name in names if not await contains_commit(context.repository, target_tip, tips_by_branch[name])
    ]
    found = await to_thread.run_sync(lambda: [team_runs.find_result(name) for name in unmerged])
    ready, reasons = select_mergeable(result for result in found if result is not None)
    for branch, reason in reasons.items():
        notice(f"{branch}: skipped, because {reason}; merge the branch anyway with: podium merge {branch}")
    return {one.branch: (one, tips_by_branch[one.branch]) for one in ready}


def describe_missing_work(context: RepoContext, branches: Collection[str] = ()) -> list[str]:
    """Return a sentence for each worker that had to change files, but has ended without any changes on its branch.

    `branches` are the branches to look at; empty means all.
    """
    return [
        f"{branch}: its worker had to change files, but there is no change on the branch"
        + (f" ({worker.why})" if worker.why else f"; run podium workers output {branch} to see its answer")
        for branch, worker in _find_newest_workers(context).items()
        if (branch in branches or not branches) and worker.is_over and worker.expects_changes and worker.base
        if not worker.files
    ]


def _find_newest_workers(context: RepoContext) -> dict[str, WorkerState]:
    """Return the newest worker on each branch.

    A worker that ended before it had a checkout is ignored if the branch has an earlier worker.
    """
    newest: dict[str, WorkerState] = {}
    for worker in context.load_workers():
        branch, has_been_there = worker.worker_task.branch, bool(worker.base)
        if branch and (has_been_there or not worker.is_over or branch not in newest):
            newest[branch] = worker
    return newest


async def _find_resolving_branch(
    repository: Repository, commit: str, resolver: Resolver | None, resolvers_by_branch: Mapping[str, Resolver]
) -> str:
    """Return the branch of an active worker that is resolving a merge conflict with a commit, or an empty string.

    `resolver` is the worker that made the commit, if that worker was itself resolving a conflict. In this case, an
    active worker that resolves the same conflict also counts.
    """
    for branch, other in resolvers_by_branch.items():
        if other.worker.is_over:
            continue
        is_same = resolver is not None and resolver.resolves.theirs == other.resolves.theirs
        if is_same or await is_resolution_of(repository, other.resolves, commit):
            return branch
    return ""


async def _make_candidate(
    context: RepoContext,
    worker: WorkerState,
    target: str,
    resolvers_by_branch: Mapping[str, Resolver],
    *,
    notice: str = "",
) -> MergeCandidate:
    before = load_readable_states(context.store, worker.worker_task.after)
    after = tuple(one.worker_task.branch for one in before if one.worker_task.branch)
    resolver = resolvers_by_branch.get(worker.worker_task.branch)
    if resolver is None:
        base = worker.base or target
        return MergeCandidate(
            branch=worker.name, base=base, run=worker.run, after=after, notice=notice, elsewhere=worker.works[1:]
        )
    target_tip, ours = await branch_tip(context.repository, target), resolver.resolves.ours
    if not await contains_commit(context.repository, target_tip, ours):
        more = (
            f"{worker.name}: its conflict was resolved on top of {ours[:SHORT]}, which is not in {target}; "
            f"the commits up to {ours[:SHORT]} are merged too"
        )
        notice = f"{notice}\n{more}" if notice else more
    # The worker started from a merge of both sides, so its changes are everything that the target lacks.
    return MergeCandidate(
        branch=worker.name, base=target, run=worker.run, after=after, notice=notice, resolves=resolver.resolves
    )


async def _order_candidates(
    repository: Repository, candidates: Sequence[MergeCandidate], notice: Callable[[str], object]
) -> list[MergeCandidate]:
    """Leave out each candidate that another candidate replaces, and return the remaining candidates in merge order.

    If other candidates build on a replaced candidate, the replacement comes before them.
    """
    if all(candidate.resolves is None for candidate in candidates):
        return list(candidates)
    tips_by_branch = await branch_tips(repository, [candidate.branch for candidate in candidates])
    replacements = await _find_replacements(repository, candidates, tips_by_branch)
    for branch, other in replacements.items():
        notice(f"{branch}: {other} is merged in its place, with the conflict resolved")
    going = [
        candidate
        for candidate in candidates
        if candidate.branch not in replacements and candidate.branch in tips_by_branch
    ]
    ordered: list[MergeCandidate] = [candidate for candidate in candidates if candidate.branch not in tips_by_branch]
    for candidate in going:
        # Commits added to a branch after a resolver was started apply on top of the resolution.
        first = [
            other
            for other in going
            if other.resolves is not None
            and await contains_commit(repository, tips_by_branch[candidate.branch], other.resolves.theirs)
        ]
        ordered += [one for one in dict.fromkeys((*first, candidate)) if one not in ordered]
    return [
        replace(candidate, after=tuple(replacements.get(name, name) for name in candidate.after))
        for candidate in ordered
    ]


async def _find_replacements(
    repository: Repository, candidates: Sequence[MergeCandidate], tips_by_branch: Mapping[str, str]
) -> dict[str, str]:
    """Map each replaced branch to the branch that replaces it.

    The replacement resolves the conflict of the branch, or is a later attempt to resolve the same conflict.
    """
    replacements: dict[str, str] = {}
    for place, candidate in enumerate(candidates):
        for other_place, other in enumerate(candidates):
            if other is candidate or other.resolves is None or candidate.branch not in tips_by_branch:
                continue
            is_anew = candidate.resolves is not None and candidate.resolves.theirs == other.resolves.theirs
            if (is_anew and place < other_place) or await is_resolution_of(
                repository, other.resolves, tips_by_branch[candidate.branch]
            ):
                replacements[candidate.branch] = other.branch
    for branch in replacements:
        while replacements[branch] in replacements:
            replacements[branch] = replacements[replacements[branch]]
    return replacements
