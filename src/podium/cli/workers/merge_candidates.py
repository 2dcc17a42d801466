"""Wagons: the branches that are to go along in a merge train, as the person means them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...values.errors import Mistake
from ...views.worker_state import WorkerState
from ...workspace.git.repository import Repository
from ...workspace.git.revision import SHORT, contains, tip, tips
from ...workspace.merging.resolution_commit import Beginning, begun_at, settles, unresolved
from ..terminal.say import say
from .worker_lookup import There, seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Wagon:
    """A branch that is to go along: where it began, the branches that it builds on, and what to know about it.

    `resolves` is the conflict that its worker was sent to.
    """

    branch: str
    base: str
    after: tuple[str, ...] = ()
    notice: str = ""
    resolves: Beginning | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolver:
    """A worker that was sent to a conflict."""

    worker: WorkerState
    resolves: Beginning


async def resolvers(there: There) -> dict[str, Resolver]:
    """The workers that were sent to conflicts, by their branches, in the order in which they were hired."""
    workers = {worker.errand.branch: worker for worker in there.workers() if worker.errand.base}
    begun = await begun_at(there.repository, (worker.errand.base for worker in workers.values()))
    return {
        branch: Resolver(worker=worker, resolves=begun[worker.errand.base])
        for branch, worker in workers.items()
        if worker.errand.base in begun
    }


async def wagons(there: There, names: Sequence[str], target: str) -> list[Wagon]:
    """What goes along: the branches that the person named, or all that are ready. Raises Mistake."""
    known = await resolvers(there)
    if names:
        found = [await _named(there, name, target, known) for name in names]
    else:
        found = await _ready(there, target, known)
    return await _arranged(there.repository, found)


async def _named(there: There, name: str, target: str, known: Mapping[str, Resolver]) -> Wagon:
    """A branch that the person named: that of a worker, or any other."""
    if name == target:
        raise Mistake(f"{name} cannot be merged onto itself; --onto TARGET says what it is merged onto")
    on_it = _newest(there).get(name)
    if on_it is None and name in await tips(there.repository, [name]):
        return Wagon(branch=name, base=target, notice=f"{name}: no worker was on it; it is merged as it is")
    worker = on_it or there.worker(name)
    notice = ""
    if worker.state != "complete":
        what = "has not succeeded" if worker.is_over else "is not over"
        notice = f"{worker.name}: its worker {what} ({worker.state}); what the branch has by now is merged"
    return await _wagon(there, worker, target, known, notice=notice)


async def _ready(there: There, target: str, known: Mapping[str, Resolver]) -> list[Wagon]:
    """The branches whose newest workers succeeded and that the target does not have."""
    newest = _newest(there)
    found = await tips(there.repository, newest)
    goal = await tip(there.repository, target)
    ready: list[Wagon] = []
    for branch, worker in newest.items():
        if branch == target or branch not in found or await contains(there.repository, goal, found[branch]):
            continue
        mine = known.get(branch)
        if mine is not None and await contains(there.repository, goal, mine.resolves.theirs):
            continue  # the conflict was resolved in another way
        if worker.state != "complete":
            say(
                f"{branch}: left aside, since its worker is {worker.state}; podium merge {branch} takes it all the same"
            )
        elif other := await _resolved_by(there.repository, found[branch], mine, known):
            say(f"{branch}: left aside, since {other} is to resolve it and is not done")
        elif mine is not None and (files := await unresolved(there.repository, found[branch], mine.resolves)):
            say(f"{branch}: left aside, since marks of its conflict are left in {', '.join(files)}")
        else:
            ready.append(await _wagon(there, worker, target, known))
    return ready


def _newest(there: There) -> dict[str, WorkerState]:
    """The newest worker of each branch; one that came to its end without a checkout says nothing of the branch."""
    newest: dict[str, WorkerState] = {}
    for worker in there.workers():
        branch, has_been_there = worker.errand.branch, bool(worker.base)
        if branch and (has_been_there or not worker.is_over or branch not in newest):
            newest[branch] = worker
    return newest


async def _resolved_by(
    repository: Repository, commit: str, mine: Resolver | None, known: Mapping[str, Resolver]
) -> str:
    """The branch on which somebody works on the conflict of a commit, or on the same one anew; empty if on none."""
    for branch, other in known.items():
        if other.worker.is_over:
            continue
        is_same = mine is not None and mine.resolves.theirs == other.resolves.theirs
        if is_same or await settles(repository, other.resolves, commit):
            return branch
    return ""


async def _wagon(
    there: There, worker: WorkerState, target: str, known: Mapping[str, Resolver], *, notice: str = ""
) -> Wagon:
    before = seen(there.store, worker.errand.after)
    after = tuple(one.errand.branch for one in before if one.errand.branch)
    mine = known.get(worker.errand.branch)
    if mine is None:
        return Wagon(branch=worker.name, base=worker.base or target, after=after, notice=notice)
    goal, ours = await tip(there.repository, target), mine.resolves.ours
    if not await contains(there.repository, goal, ours):
        more = f"{worker.name}: it was resolved on top of {ours[:SHORT]}, and what {target} lacks of that goes along"
        notice = f"{notice}\n{more}" if notice else more
    # Its worker began where both sides were in already; what it brings is all that the target lacks.
    return Wagon(branch=worker.name, base=target, after=after, notice=notice, resolves=mine.resolves)


async def _arranged(repository: Repository, found: Sequence[Wagon]) -> list[Wagon]:
    """The wagons without those in whose place another one goes; what builds on those goes behind that one."""
    if all(wagon.resolves is None for wagon in found):
        return list(found)
    at = await tips(repository, [wagon.branch for wagon in found])
    instead = await _instead(repository, found, at)
    for branch, other in instead.items():
        say(f"{branch}: {other} goes along in its place, resolved")
    going = [wagon for wagon in found if wagon.branch not in instead and wagon.branch in at]
    kept: list[Wagon] = [wagon for wagon in found if wagon.branch not in at]
    for wagon in going:
        # What was added to a branch after its conflict went to somebody fits onto what came out of that.
        first = [
            other
            for other in going
            if other.resolves is not None and await contains(repository, at[wagon.branch], other.resolves.theirs)
        ]
        kept += [one for one in dict.fromkeys((*first, wagon)) if one not in kept]
    return [replace(wagon, after=tuple(instead.get(name, name) for name in wagon.after)) for wagon in kept]


async def _instead(repository: Repository, found: Sequence[Wagon], at: Mapping[str, str]) -> dict[str, str]:
    """The branches in whose place another one goes, and which: it resolves their conflict, or the same one anew."""
    taken: dict[str, str] = {}
    for place, wagon in enumerate(found):
        for other_place, other in enumerate(found):
            if other is wagon or other.resolves is None or wagon.branch not in at:
                continue
            is_anew = wagon.resolves is not None and wagon.resolves.theirs == other.resolves.theirs
            if (is_anew and place < other_place) or await settles(repository, other.resolves, at[wagon.branch]):
                taken[wagon.branch] = other.branch
    for branch in taken:
        while taken[branch] in taken:
            taken[branch] = taken[taken[branch]]
    return taken
