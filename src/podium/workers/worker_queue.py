"""Decide which workers to start next, based on the phases of all workers' runs. This module does no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from ..values.phase import FINAL_PHASES, Phase

STARTABLE: frozenset[Phase] = frozenset({"queued", "resumable"})
"""The phases in which a worker's run can be started."""


class Job(NamedTuple):
    """A worker that has not ended, and the runs that it waits for."""

    run: str
    name: str
    after: tuple[str, ...] = ()
    parent: str = ""
    """The run that started this worker and may be waiting for it."""
    root: str = ""
    """The repository that this worker works in."""


class StartPlan(NamedTuple):
    """The runs to start now, and the runs that can never be started, each with the reason."""

    start: list[str]
    unstartable: list[tuple[str, str]]


def plan_worker_starts(
    jobs: Sequence[Job],
    *,
    phases: Mapping[str, Phase],
    running: Collection[str],
    most: int,
    within: Mapping[str, int] | None = None,
    end_texts: Mapping[str, str] | None = None,
) -> StartPlan:
    """Return which workers to start now and which can never be started.

    `phases` includes workers that have ended. Waiting workers are started in the order of `jobs`, each after all
    runs in its `after` have succeeded. At most `most` workers run at once, and `within` maps repositories to their own
    limits. Regardless of these limits, each running parent can have one running worker. `end_texts` maps each run
    that did not succeed to the reason why the workers that depend on it cannot be started.
    """
    served_parents = {job.parent for job in jobs if job.run in running}
    busy = Counter(job.root for job in jobs if job.run in running)
    start: list[str] = []
    unstartable: list[tuple[str, str]] = []
    for job in jobs:
        if job.run in running or phases.get(job.run, "queued") not in STARTABLE:
            continue
        before = {run: phases.get(run, "failed") for run in job.after}
        failed = [run for run, phase in before.items() if phase in FINAL_PHASES and phase != "succeeded"]
        if failed:
            why = (end_texts or {}).get(failed[0], f"it depends on {failed[0]}, which did not succeed")
            unstartable.append((job.run, why))
            continue
        has_place = len(running) + len(start) < most and busy[job.root] < (within or {}).get(job.root, most)
        # A parent that waits for its worker occupies a slot, so the worker must not have to wait for that slot.
        is_awaited = job.parent in running and job.parent not in served_parents
        if all(phase == "succeeded" for phase in before.values()) and (has_place or is_awaited):
            start.append(job.run)
            served_parents.add(job.parent)
            busy[job.root] += 1
    return StartPlan(start, unstartable)
