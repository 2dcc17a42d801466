"""Who works next: a plain decision over the workers that there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple

RunStatus = Literal["succeeded", "failed", "timed_out", "cancelled", "paused", "taken", "open"]
"""How a worker's run has ended, that it is paused, that somebody else works on it, or none of these."""


class Job(NamedTuple):
    """A worker that is not over, and whom it waits for."""

    run: str
    name: str
    after: tuple[str, ...] = ()
    parent: str = ""
    """The run that sent it, and may be waiting for it."""
    root: str = ""
    """The repository that it works in."""


class StartPlan(NamedTuple):
    """Whom to start now, and who cannot be started any more, with the reason."""

    start: list[str]
    unstartable: list[tuple[str, str]]


def plan_worker_starts(
    jobs: Sequence[Job],
    *,
    statuses: Mapping[str, RunStatus],
    running: Collection[str],
    most: int,
    within: Mapping[str, int] | None = None,
    end_texts: Mapping[str, str] | None = None,
) -> StartPlan:
    """The next steps. `rest` tells how runs stand, also of workers that are over; only who runs takes a place.

    Those that wait are started in the order in which they were hired, each when all it waits for succeeded.
    `most` may be at work, and in a repository no more than `within` says of it. Past these limits each parent that
    runs has one worker at work. `told` has, of workers that are over, who they were and how they ended.
    """
    served_parents = {job.parent for job in jobs if job.run in running}
    busy = Counter(job.root for job in jobs if job.run in running)
    start: list[str] = []
    unstartable: list[tuple[str, str]] = []
    for job in jobs:
        if job.run in running or statuses.get(job.run, "open") != "open":
            continue
        failed = [run for run in job.after if statuses.get(run, "failed") in ("failed", "timed_out", "cancelled")]
        if failed:
            why = (end_texts or {}).get(failed[0], f"{failed[0]}, which it was to follow, has not succeeded")
            unstartable.append((job.run, why))
            continue
        has_place = len(running) + len(start) < most and busy[job.root] < (within or {}).get(job.root, most)
        # Who waits for it has a place already, and would wait for ever where nobody works for it.
        is_awaited = job.parent in running and job.parent not in served_parents
        if all(statuses.get(run) == "succeeded" for run in job.after) and (has_place or is_awaited):
            start.append(job.run)
            served_parents.add(job.parent)
            busy[job.root] += 1
    return StartPlan(start, unstartable)
