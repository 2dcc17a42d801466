"""Find the workers in a store that have not ended, and decide which of them start next.

Their phases are derived from their timelines, which are read again on every call.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from ..runs.run_authority import load_run_start
from ..store.reader import RunSummary, StoreReader
from ..store.worker_index import WorkerIndex
from ..values.errors import NoSuchRun, RunNotConfirmed, RunRefused, StoreCorrupt
from ..values.event import KINDS, RunEnded, RunPaused, RunResumed, RunStarted
from ..values.phase import FINAL_PHASES, IDLE_PHASES, Phase
from ..values.request import describe_outcome
from ..values.store_address import StoreAddress
from ..values.worker_task import WorkerTask
from ..views.run_phase import is_startable

STARTABLE: frozenset[Phase] = frozenset({"queued", "resumable"})
"""The phases in which a worker's run can be started."""


class StartPlan(NamedTuple):
    """The runs to start now, and the runs that can never be started, each with the reason."""

    start: list[str]
    unstartable: list[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedWorkers:
    """The workers that have not ended.

    `end_texts` maps each run that one of these workers depends on to a description of how that run ended.
    """

    started: Mapping[str, RunStarted]
    phases: Mapping[str, Phase]
    """The phases of the workers' runs and of those that they depend on; see `_derive_start_phase`."""
    end_texts: Mapping[str, str]
    stop_requested: frozenset[str]
    """Runs that have a stop request and that no other process is working on."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Runs that this machine does not execute because of who created them, and the reasons."""
    wakeups: Mapping[str, float] = field(default_factory=dict)
    """When the runs waiting for a provider's limit to reset will continue, in seconds since the epoch."""

    @property
    def roots(self) -> frozenset[str]:
        """The repositories of the workers."""
        return frozenset(started.errand.root for started in self.started.values() if started.errand is not None)

    def plan_starts(
        self, *, running: Collection[str] = (), most: int, within: Mapping[str, int] | None = None
    ) -> StartPlan:
        """Return which workers to start and which can never be started. `within` maps repositories to limits."""
        tasks = {run: started.errand for run, started in self.started.items() if started.errand is not None}
        plan = plan_worker_starts(
            tasks, phases=self.phases, running=running, most=most, within=within, end_texts=self.end_texts
        )
        return StartPlan(plan.start, [*plan.unstartable, *self.refused.items()])

    @property
    def has_taken_runs(self) -> bool:
        """Whether another process is working on one of the runs."""
        return any(self.phases[run] == "running" for run in self.started)


def load_unfinished_workers(
    store: StoreAddress, *, ours: Collection[str], excluded: Collection[str] = ()
) -> UnfinishedWorkers:
    """Load the unfinished workers, except those whose runs are in `excluded`.

    `ours` contains the runs of this commander's workers. Workers that turn out to have ended are marked as closed in
    the index. A fleet's workers are started by its hosts, so they are returned only if a stop was requested for them.
    """
    worker_index = WorkerIndex(store)
    rows = worker_index.list_open()
    # Read the jobs after the rows. A run and its job are created together, so no job of a run in `rows` is missed.
    fleet_runs = worker_index.list_fleet_runs()
    phases: dict[str, Phase] = {}
    end_texts: dict[str, str] = {}
    started: dict[str, RunStarted] = {}
    wakeups: dict[str, float] = {}
    refused: dict[str, str] = {}
    with StoreReader(store) as reader:
        for row in rows:
            if row.run in excluded:
                continue
            # A run that cannot be read, or that waits for a run that does not exist, must not block the others.
            with suppress(StoreCorrupt, NoSuchRun):
                summary = reader.read_summary(row.run)
                before = [reader.read_summary(run) for run in _get_preceding_runs(summary.started)]
                phase = phases[row.run] = _derive_start_phase(summary, is_ours=row.run in ours)
                if phase in FINAL_PHASES:
                    worker_index.mark_closed(row.run)
                elif row.run not in fleet_runs:
                    try:
                        started[row.run] = load_run_start(store, row.run)
                    except RunNotConfirmed:
                        continue  # it waits for the user
                    except RunRefused as error:
                        if phase in STARTABLE:
                            refused[row.run] = str(error)
                        continue
                    if phase == "waiting" and isinstance(summary.last.event, RunPaused):
                        wakeups[row.run] = summary.last.event.until
                for one in before:
                    phases.setdefault(one.id, one.phase)
                    end_texts[one.id] = describe_ending(one)
    stop_requested = frozenset(run for run in worker_index.list_stop_requested() if phases.get(run) in IDLE_PHASES)
    return UnfinishedWorkers(
        started=started,
        phases=phases,
        end_texts=end_texts,
        stop_requested=stop_requested,
        wakeups=wakeups,
        refused=refused,
    )


def has_work(store: StoreAddress, excluded: Collection[str] = ()) -> bool:
    """Return whether a commander is needed.

    One is needed if a worker must be started, now or when a limit resets, or must be stopped or marked as failed, or if
    another process is working on a worker's run.
    """
    unfinished = load_unfinished_workers(store, ours=(), excluded=excluded)
    is_needed = unfinished.has_taken_runs or bool(unfinished.stop_requested or unfinished.wakeups)
    return is_needed or any(unfinished.plan_starts(most=1))


def _derive_start_phase(summary: RunSummary, *, is_ours: bool) -> Phase:
    """Return the phase of a worker's run for the commander that may start or stop it.

    The process of its own worker does not count. A run that another process still holds is `running` even if it has
    paused, and a run is no longer `waiting` when the limit has reset.
    """
    if summary.is_over:
        return summary.phase
    if summary.lease == "held" and not is_ours:
        return "running"
    return "resumable" if is_startable(summary.last.event, now=time.time()) else summary.phase


def was_paused_by(store: StoreAddress, run: str, pid: int) -> bool:
    """Return whether the run was paused after process `pid` resumed it, even if it was resumed again later."""
    is_paused = False
    with StoreReader(store) as reader:
        for entry in reversed(reader.read_entries(run, kinds=(KINDS[RunPaused], KINDS[RunResumed]))):
            if isinstance(entry.event, RunResumed) and entry.event.pid == pid:
                return is_paused
            is_paused = is_paused or isinstance(entry.event, RunPaused)
    return False


def describe_ending(summary: RunSummary) -> str:
    """Return a clause that says how a worker ended, for the workers that depend on it."""
    how, why = "did not succeed", ""
    if isinstance(summary.last.event, RunEnded):
        outcome, failure = summary.last.event.outcome, summary.last.event.failure
        how = describe_outcome(outcome)
        why = "" if failure is None else f": {failure}"
    return f"it depends on {_get_worker_name(summary.id, summary.started)}, which {how}{why}"


def _get_worker_name(run: str, started: RunStarted) -> str:
    """Return a worker's display name."""
    return (started.errand.worker_name if started.errand is not None else "") or run


def _get_preceding_runs(started: RunStarted) -> tuple[str, ...]:
    """Return the runs that must succeed before this run starts."""
    return () if started.errand is None else started.errand.after


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
