"""Decide which workers to start next, based on the phases of all workers' runs. This module does no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple

from ..values.phase import FINAL_PHASES, Phase
from ..values.worker_task import WorkerTask

STARTABLE: frozenset[Phase] = frozenset({"queued", "resumable"})
"""The phases in which a worker's run can be started."""


class StartPlan(NamedTuple):
    """The runs to start now, and the runs that can never be started, each with the reason."""

    start: list[str]
    unstartable: list[tuple[str, str]]


def plan_worker_starts(
    tasks: Mapping[str, WorkerTask],
    *,
    phases: Mapping[str, Phase],
    running: Collection[str],
    most: int,
    within: Mapping[str, int] | None = None,
    end_texts: Mapping[str, str] | None = None,
) -> StartPlan:
    """Return which workers to start now and which can never be started.

    `tasks` contains the tasks of the workers that have not ended, keyed by run. `phases` includes workers that have
    ended. Waiting workers are started in the order of `tasks`, each after all runs in its `after` have succeeded. At
    most `most` workers run at once, and `within` maps repositories to their own limits. Regardless of these limits,
    each running parent can have one running worker. `end_texts` maps each run that did not succeed to the reason why
    the workers that depend on it cannot be started.
    """
    served_parents = {task.parent for run, task in tasks.items() if run in running}
    busy = Counter(task.root for run, task in tasks.items() if run in running)
    start: list[str] = []
    unstartable: list[tuple[str, str]] = []
    for run, task in tasks.items():
        if run in running or phases.get(run, "queued") not in STARTABLE:
            continue
        before = {other: phases.get(other, "failed") for other in task.after}
        failed = [other for other, phase in before.items() if phase in FINAL_PHASES and phase != "succeeded"]
        if failed:
            why = (end_texts or {}).get(failed[0], f"it depends on {failed[0]}, which did not succeed")
            unstartable.append((run, why))
            continue
        has_place = len(running) + len(start) < most and busy[task.root] < (within or {}).get(task.root, most)
        # A parent that waits for its worker occupies a slot, so the worker must not have to wait for that slot.
        is_awaited = task.parent in running and task.parent not in served_parents
        if all(phase == "succeeded" for phase in before.values()) and (has_place or is_awaited):
            start.append(run)
            served_parents.add(task.parent)
            busy[task.root] += 1
    return StartPlan(start, unstartable)
