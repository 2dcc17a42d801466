"""Wagons: the branches that are to go along in a merge train, as the person means them."""

from __future__ import annotations

from dataclasses import dataclass

import anyio

from ..errors import Mistake
from ..worker_state import WorkerState
from ..workspace.revision import contains, tip, tips
from .say import say
from .workers_look import There, seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Wagon:
    """A branch that is to go along: where it began, the branches that it builds on, and what to know about it."""

    branch: str
    base: str
    after: tuple[str, ...] = ()
    notice: str = ""


def named(there: There, name: str, target: str) -> Wagon:
    """A branch that the person named: that of a worker, or any other."""
    if name == target:
        raise Mistake(f"{name} cannot be merged onto itself; --onto TARGET says what it is merged onto")
    known = [worker for worker in there.workers() if worker.errand.branch == name]
    if not known and name in anyio.run(tips, there.repository, [name]):
        return Wagon(branch=name, base=target, notice=f"{name}: no worker was on it; it is merged as it is")
    worker = known[-1] if known else there.worker(name)
    notice = ""
    if worker.state != "complete":
        what = "has not succeeded" if worker.is_over else "is not over"
        notice = f"{worker.name}: its worker {what} ({worker.state}); what the branch has by now is merged"
    return _wagon(there, worker, target, notice=notice)


async def ready(there: There, target: str) -> list[Wagon]:
    """The branches whose newest workers succeeded and that the target does not have."""
    newest = {worker.errand.branch: worker for worker in there.workers() if not worker.errand.is_reader}
    found = await tips(there.repository, newest)
    goal = await tip(there.repository, target)
    ready: list[Wagon] = []
    for branch, worker in newest.items():
        if branch == target or branch not in found or await contains(there.repository, goal, found[branch]):
            continue
        if worker.state == "complete":
            ready.append(_wagon(there, worker, target))
        else:
            say(
                f"{branch}: left aside, since its worker is {worker.state}; podium merge {branch} takes it all the same"
            )
    return ready


def _wagon(there: There, worker: WorkerState, target: str, *, notice: str = "") -> Wagon:
    before = seen(there.store, worker.errand.after)
    after = tuple(one.errand.branch for one in before if one.errand.branch)
    return Wagon(branch=worker.name, base=worker.base or target, after=after, notice=notice)
