"""The outlook: the workers of a store that are not over, and how they and those that they follow stand.

It is read off the timelines each time anew. What to do about it is for the schedule and the commander.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..store.sqlite.reader import RunSummary, StoreReader
from ..store.sqlite.worker_index import WorkerIndex
from ..values.errors import StoreCorrupt
from ..values.event import KINDS, Entry, RunEnded, RunPaused, RunResumed, RunStarted, decode_entry
from .worker_queue import Job, RunStatus, StartPlan, plan_worker_starts


@dataclass(frozen=True, slots=True, kw_only=True)
class UnfinishedWorkers:
    """What there is to do. `told` has of those that are followed who they were and how they ended."""

    started: Mapping[str, RunStarted]
    statuses: Mapping[str, RunStatus]
    end_texts: Mapping[str, str]
    stop_requested: frozenset[str]
    """Those that somebody wants to end, and that nobody else works on."""

    @property
    def roots(self) -> frozenset[str]:
        """The repositories that they work in."""
        return frozenset(started.errand.root for started in self.started.values() if started.errand is not None)

    def plan_starts(
        self, *, running: Collection[str] = (), most: int, within: Mapping[str, int] | None = None
    ) -> StartPlan:
        """Whom to start, and who cannot be started any more; `within` is the most in each repository."""
        jobs = [make_job(run, started) for run, started in self.started.items()]
        return plan_worker_starts(
            jobs, statuses=self.statuses, running=running, most=most, within=within, end_texts=self.end_texts
        )

    @property
    def has_taken_runs(self) -> bool:
        """Whether somebody else works on one of the runs."""
        return any(self.statuses[run] == "taken" for run in self.started)


def load_unfinished_workers(store: Path, *, ours: Collection[str], excluded: Collection[str] = ()) -> UnfinishedWorkers:
    """How it stands; `ours` are the runs that our own workers are on, `but` those that nothing can be done about.

    Those that are over are noted as such.
    """
    worker_index = WorkerIndex(store)
    statuses: dict[str, RunStatus] = {}
    end_texts: dict[str, str] = {}
    started: dict[str, RunStarted] = {}
    with StoreReader(store) as reader:
        for row in worker_index.list_open():
            if row.run in excluded:
                continue
            # What cannot be read, because a newer Podium wrote it or it is damaged, keeps nobody else from working.
            with suppress(StoreCorrupt):
                summary = reader.read_summary(row.run)
                before = [reader.read_summary(run) for run in get_preceding_runs(get_run_started(summary))]
                statuses[row.run] = derive_worker_status(summary, is_ours=row.run in ours)
                if statuses[row.run] in ("open", "paused", "taken"):
                    started[row.run] = get_run_started(summary)
                else:
                    worker_index.mark_closed(row.run)
                for one in before:
                    statuses.setdefault(one.id, derive_run_status(one.last))
                    end_texts[one.id] = describe_ending(one)
    stop_requested = frozenset(
        run for run in worker_index.list_stop_requested() if statuses.get(run) in ("open", "paused")
    )
    return UnfinishedWorkers(started=started, statuses=statuses, end_texts=end_texts, stop_requested=stop_requested)


def has_work(store: Path, excluded: Collection[str] = ()) -> bool:
    """Whether a commander could start anybody now, has to end somebody, or to tell that it never will be started."""
    unfinished = load_unfinished_workers(store, ours=(), excluded=excluded)
    return any(unfinished.plan_starts(most=1)) or unfinished.has_taken_runs or bool(unfinished.stop_requested)


def derive_worker_status(summary: RunSummary, *, is_ours: bool) -> RunStatus:
    """How a worker's run stands; one that a live process has that is none of our workers is taken."""
    status = derive_run_status(summary.last)
    is_held = summary.owner is not None and summary.owner.is_alive and not is_ours
    return "taken" if status in ("open", "paused") and is_held else status


def get_run_started(summary: RunSummary) -> RunStarted:
    """How a run began."""
    assert isinstance(summary.first.event, RunStarted)
    return summary.first.event


def derive_run_status(last: Entry) -> RunStatus:
    """How a run stands, by the last thing on its timeline."""
    match last.event:
        case RunEnded(outcome="succeeded" | "failed" | "timed_out" | "cancelled" as outcome):
            return outcome
        case RunEnded():
            return "failed"
        case RunPaused():
            return "paused"
        case _:
            return "open"


def was_paused_by(store: Path, run: str, pid: int) -> bool:
    """Whether a process has paused a run that it worked on, whatever became of that since."""
    is_paused = False
    with StoreReader(store) as reader:
        for row in reversed(reader.read_rows_of_kinds(run, (KINDS[RunPaused], KINDS[RunResumed]))):
            event = decode_entry(row.line).event
            if isinstance(event, RunResumed) and event.pid == pid:
                return is_paused
            is_paused = is_paused or isinstance(event, RunPaused)
    return False


def describe_ending(summary: RunSummary) -> str:
    """Who a worker was and how it ended, for those that were to follow it."""
    how, why = "has not succeeded", ""
    if isinstance(summary.last.event, RunEnded):
        outcome, failure = summary.last.event.outcome, summary.last.event.failure
        how = {"cancelled": "was cancelled", "timed_out": "timed out"}.get(outcome, str(outcome))
        why = "" if failure is None else f": {failure}"
    return f"{get_worker_name(summary.id, get_run_started(summary))}, which it was to follow, {how}{why}"


def make_job(run: str, started: RunStarted) -> Job:
    """A worker as the schedule sees it."""
    name, worker_task = get_worker_name(run, started), started.errand
    if worker_task is None:
        return Job(run, name)
    return Job(run, name, after=worker_task.after, parent=worker_task.parent, root=worker_task.root)


def get_worker_name(run: str, started: RunStarted) -> str:
    """What people call a worker."""
    return (started.errand.worker_name if started.errand is not None else "") or run


def get_preceding_runs(started: RunStarted) -> tuple[str, ...]:
    """The runs of the workers that have to succeed before this one."""
    return () if started.errand is None else started.errand.after
