"""Wagons: the branches that are to go along in a merge train, as the person means them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..values.errors import Mistake
from ..views.worker_state import WorkerState
from ..workspace.git.repository import Repository
from ..workspace.git.revision import SHORT, branch_tip, contains_commit, tips
from ..workspace.merging.resolution_commit import (
    ResolutionStart,
    filter_resolution_starts,
    find_unresolved_files,
    is_resolution_of,
)
from .worker_lookup import RepoContext, load_worker_states


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeCandidate:
    """A branch that is to go along: where it began, the branches that it builds on, and what to know about it.

    `resolves` is the conflict that its worker was sent to.
    """

    branch: str
    base: str
    after: tuple[str, ...] = ()
    notice: str = ""
    resolves: ResolutionStart | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolver:
    """A worker that was sent to a conflict."""

    worker: WorkerState
    resolves: ResolutionStart


async def find_resolvers(context: RepoContext) -> dict[str, Resolver]:
    """The workers that were sent to conflicts, by their branches, in the order in which they were hired."""
    workers = {worker.errand.branch: worker for worker in context.load_workers() if worker.errand.base}
    starts_by_base = await filter_resolution_starts(
        context.repository, (worker.errand.base for worker in workers.values())
    )
    return {
        branch: Resolver(worker=worker, resolves=starts_by_base[worker.errand.base])
        for branch, worker in workers.items()
        if worker.errand.base in starts_by_base
    }


async def find_merge_candidates(
    context: RepoContext, names: Sequence[str], target: str, *, notice: Callable[[str], object]
) -> list[MergeCandidate]:
    """What goes along: the branches that the person named, or all that are ready. Raises Mistake."""
    resolvers_by_branch = await find_resolvers(context)
    if names:
        candidates = [await _find_named_candidate(context, name, target, resolvers_by_branch) for name in names]
    else:
        candidates = await _find_ready_candidates(context, target, resolvers_by_branch, notice)
    return await _order_candidates(context.repository, candidates, notice)


async def _find_named_candidate(
    context: RepoContext, name: str, target: str, resolvers_by_branch: Mapping[str, Resolver]
) -> MergeCandidate:
    """A branch that the person named: that of a worker, or any other."""
    if name == target:
        raise Mistake(f"{name} cannot be merged onto itself; --onto TARGET says what it is merged onto")
    newest = _find_newest_workers(context).get(name)
    if newest is None and name in await tips(context.repository, [name]):
        return MergeCandidate(branch=name, base=target, notice=f"{name}: no worker was on it; it is merged as it is")
    worker = newest or context.find_worker(name)
    notice = ""
    if worker.state != "complete":
        what = "has not succeeded" if worker.is_over else "is not over"
        notice = f"{worker.name}: its worker {what} ({worker.state}); what the branch has by now is merged"
    return await _make_candidate(context, worker, target, resolvers_by_branch, notice=notice)


async def _find_ready_candidates(
    context: RepoContext, target: str, resolvers_by_branch: Mapping[str, Resolver], notice: Callable[[str], object]
) -> list[MergeCandidate]:
    """The branches whose newest workers succeeded and that the target does not have."""
    newest = _find_newest_workers(context)
    tips_by_branch = await tips(context.repository, newest)
    target_tip = await branch_tip(context.repository, target)
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
        if worker.state != "complete":
            notice(
                f"{branch}: left aside, since its worker is {worker.state}; podium merge {branch} takes it all the same"
            )
        elif other := await _find_resolving_branch(
            context.repository, tips_by_branch[branch], resolver, resolvers_by_branch
        ):
            notice(f"{branch}: left aside, since {other} is to resolve it and is not done")
        elif resolver is not None and (
            files := await find_unresolved_files(context.repository, tips_by_branch[branch], resolver.resolves)
        ):
            notice(f"{branch}: left aside, since marks of its conflict are left in {', '.join(files)}")
        else:
            ready.append(await _make_candidate(context, worker, target, resolvers_by_branch))
    return ready


def _find_newest_workers(context: RepoContext) -> dict[str, WorkerState]:
    """The newest worker of each branch; one that came to its end without a checkout says nothing of the branch."""
    newest: dict[str, WorkerState] = {}
    for worker in context.load_workers():
        branch, has_been_there = worker.errand.branch, bool(worker.base)
        if branch and (has_been_there or not worker.is_over or branch not in newest):
            newest[branch] = worker
    return newest


async def _find_resolving_branch(
    repository: Repository, commit: str, resolver: Resolver | None, resolvers_by_branch: Mapping[str, Resolver]
) -> str:
    """The branch on which somebody works on the conflict of a commit, or on the same one anew; empty if on none."""
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
    before = load_worker_states(context.store, worker.errand.after)
    after = tuple(one.errand.branch for one in before if one.errand.branch)
    resolver = resolvers_by_branch.get(worker.errand.branch)
    if resolver is None:
        return MergeCandidate(branch=worker.name, base=worker.base or target, after=after, notice=notice)
    target_tip, ours = await branch_tip(context.repository, target), resolver.resolves.ours
    if not await contains_commit(context.repository, target_tip, ours):
        more = f"{worker.name}: it was resolved on top of {ours[:SHORT]}, and what {target} lacks of that goes along"
        notice = f"{notice}\n{more}" if notice else more
    # Its worker began where both sides were in already; what it brings is all that the target lacks.
    return MergeCandidate(branch=worker.name, base=target, after=after, notice=notice, resolves=resolver.resolves)


async def _order_candidates(
    repository: Repository, candidates: Sequence[MergeCandidate], notice: Callable[[str], object]
) -> list[MergeCandidate]:
    """The wagons without those in whose place another one goes; what builds on those goes behind that one."""
    if all(candidate.resolves is None for candidate in candidates):
        return list(candidates)
    tips_by_branch = await tips(repository, [candidate.branch for candidate in candidates])
    replacements = await _find_replacements(repository, candidates, tips_by_branch)
    for branch, other in replacements.items():
        notice(f"{branch}: {other} goes along in its place, resolved")
    going = [
        candidate
        for candidate in candidates
        if candidate.branch not in replacements and candidate.branch in tips_by_branch
    ]
    ordered: list[MergeCandidate] = [candidate for candidate in candidates if candidate.branch not in tips_by_branch]
    for candidate in going:
        # What was added to a branch after its conflict went to somebody fits onto what came out of that.
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
    """The branches in whose place another one goes, and which: it resolves their conflict, or the same one anew."""
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
