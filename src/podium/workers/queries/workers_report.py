"""Report the results of workers, individually and in total."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from functools import partial
from pathlib import Path

import anyio
from msgspec import Struct, field

from ...runs.queries.team_states import StateReader, read_team_states
from ...store.reader import StoreReader
from ...store.worker_index import WorkerIndex
from ...values.column import DocumentPart, encode_rows
from ...values.errors import PodiumError
from ...values.store_address import StoreAddress
from ...values.usage import FullUsage
from ...views.run_state.sent_workers import SentWorker, SentWorkers
from ...views.worker_state import SharedFile, WorkersSummary
from ...workspace.merging.overlap_forecast import Forecast
from ...workspace.worktrees.worktree_status import WorktreeStatus
from ..merging.branch_forecast import ForecastReport, build_forecast_report, forecast_branches
from .worker_listing import WORKER_COLUMNS, WorkerObject, make_worker_rows
from .worker_lookup import load_readable_states, read_worktree_statuses

NOT_STARTED_REASON = "no worker was started"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersReport:
    """The results of workers, and a merge forecast for their branches.

    `statuses` contains the checkout status of workers that have not ended, keyed by run. `not_started` contains the
    workers that were requested but never started. `forecast_error` says why the forecast failed, if it did.
    """

    summary: WorkersSummary
    statuses: dict[str, WorktreeStatus] = dataclass_field(default_factory=dict)
    not_started: tuple[SentWorker, ...] = ()
    forecast: Forecast | None = None
    forecast_error: str = ""

    @property
    def has_results(self) -> bool:
        """Whether the report contains any workers that are not queued. Queued workers have no results yet."""
        return bool(self.not_started) or any(worker.state != "queued" for worker in self.summary.workers)


def build_sent_workers_report(store: StoreAddress, run: str) -> WorkersReport:
    """Report on all workers that a run started, directly or through other workers."""
    known_runs = {worker_row.run for worker_row in WorkerIndex(store).list_all()}
    with StoreReader(store) as reader:
        read = partial(StateReader(SentWorkers).read, reader)
        states = read_team_states(run, read, includes=known_runs.__contains__)
    sent_workers = [one for state in states.values() for one in state.sent.values()]
    if not sent_workers:
        return WorkersReport(summary=WorkersSummary.from_workers(()))
    not_started = tuple(one for one in sent_workers if one.run not in known_runs)
    return build_workers_report(store, [one for one in states if one != run], not_started=not_started)


def build_workers_report(
    store: StoreAddress, runs: Iterable[str], *, not_started: tuple[SentWorker, ...] = ()
) -> WorkersReport:
    """Report on the workers of these runs."""
    summary = WorkersSummary.from_workers(load_readable_states(store, runs))
    branches = summary.list_branches()
    report = WorkersReport(
        summary=summary, statuses=anyio.run(read_worktree_statuses, store, summary.workers), not_started=not_started
    )
    if not branches:
        return report
    try:
        root = Path(
            next(worker.worker_task.root for worker in summary.workers if worker.worker_task.branch in branches)
        )
        return replace(report, forecast=anyio.run(forecast_branches, root, branches))
    except PodiumError as error:
        return replace(report, forecast_error=str(error))


class UnsentWorker(DocumentPart, frozen=True, kw_only=True):
    """A worker that was requested but never started, and why."""

    run: str = field(name="id")
    branch: str
    task: str
    why: str


class Workforce(DocumentPart, frozen=True, kw_only=True):
    """The totals of workers, and the files that more than one of them changed."""

    added: int
    removed: int
    usage: FullUsage
    seconds: float
    shared: tuple[SharedFile, ...]


class WorkersResults(Struct, frozen=True, kw_only=True):
    """A report on workers as it is sent."""

    workers: list[WorkerObject]
    unsent: list[UnsentWorker]
    workforce: Workforce
    forecast: ForecastReport | None


def build_workers_results(report: WorkersReport) -> WorkersResults:
    """Return a report as it is sent."""
    rows = make_worker_rows(report.summary.workers, report.statuses, now=time.time())
    return WorkersResults(
        workers=encode_rows(rows, WORKER_COLUMNS),
        unsent=[UnsentWorker.of(one, why=_reason_not_started(one)) for one in report.not_started],
        workforce=Workforce.of(report.summary),
        forecast=None if report.forecast is None else build_forecast_report(report.forecast),
    )


def _reason_not_started(one: SentWorker) -> str:
    return one.why or NOT_STARTED_REASON
