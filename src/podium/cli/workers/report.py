"""What workers brought, each and together, as people and programs read it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
from msgspec import structs

from ...store.sqlite.reader import StoreReader
from ...store.sqlite.worker_index import WorkerIndex
from ...values.errors import PodiumError
from ...values.event import KINDS, Entry, WorkerReturned, WorkerSent, decode_entry
from ...views.worker_state import WorkerState
from ...views.workers_summary import SentWorker, WorkersSummary, list_sent_workers
from ...workspace.merging.overlap_forecast import Forecast
from ...workspace.worktrees.worktree_status import WorktreeStatus
from ..terminal.quoted_markdown import escape_inline, format_bullets, quote_block
from ..terminal.text import format_count, format_duration, format_usage, truncate_line
from . import forecast as forecasts
from .worker_lookup import format_line_count, load_worker_states, read_worktree_statuses, worker_fields

LONGEST_TASK = 200
MOST_FILES = 50
NOT_STARTED_REASON = "nobody has been hired for it"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersReport:
    """Workers and how their branches would go together; `trouble` is why that could not be tried.

    `standings` is what those that are not over have in their checkouts, by their runs. `unsent` are those that
    were to be sent and never hired.
    """

    summary: WorkersSummary
    statuses: dict[str, WorktreeStatus] = field(default_factory=dict)
    not_started: tuple[SentWorker, ...] = ()
    forecast: Forecast | None = None
    forecast_error: str = ""

    @property
    def has_results(self) -> bool:
        """Whether anybody has begun, or could not."""
        return bool(self.not_started) or any(worker.state != "queued" for worker in self.summary.workers)


def build_sent_workers_report(store: Path, entries: Iterable[Entry]) -> WorkersReport:
    """What the workers have brought that a run sent, and those that they sent in turn."""
    known_runs = {worker_row.run for worker_row in WorkerIndex(store).list_all()}
    sent_workers = list_sent_workers(entries)
    if not sent_workers:
        return WorkersReport(summary=WorkersSummary.from_workers(()))
    kinds = (KINDS[WorkerSent], KINDS[WorkerReturned])
    with StoreReader(store) as reader:
        for one in sent_workers:  # which grows meanwhile
            if one.run in known_runs:
                sent_workers += list_sent_workers(
                    decode_entry(row.line) for row in reader.read_rows_of_kinds(one.run, kinds)
                )
    not_started = tuple(one for one in sent_workers if one.run not in known_runs)
    return build_workers_report(
        store, (one.run for one in sent_workers if one.run in known_runs), not_started=not_started
    )


def build_workers_report(
    store: Path, runs: Iterable[str], *, not_started: tuple[SentWorker, ...] = ()
) -> WorkersReport:
    """What the workers of these runs have brought."""
    summary = WorkersSummary.from_workers(load_worker_states(store, runs))
    branches = summary.list_branches()
    report = WorkersReport(
        summary=summary, statuses=anyio.run(read_worktree_statuses, store, summary.workers), not_started=not_started
    )
    if not branches:
        return report
    try:
        root = Path(next(worker.errand.root for worker in summary.workers if worker.errand.branch in branches))
        return replace(report, forecast=anyio.run(forecasts.forecast_branches, root, branches))
    except PodiumError as error:
        return replace(report, forecast_error=str(error))


def workers_report_fields(report: WorkersReport) -> dict[str, Any]:
    """All of it for programs."""
    return {
        "workers": [worker_fields(worker, report.statuses.get(worker.run)) for worker in report.summary.workers],
        "unsent": [
            {"id": one.run, "branch": one.branch, "task": one.task, "why": _reason_not_started(one)}
            for one in report.not_started
        ],
        "workforce": {
            "added": report.summary.added,
            "removed": report.summary.removed,
            "usage": structs.asdict(report.summary.usage),
            "seconds": report.summary.seconds,
            "shared": [{"path": one.path, "workers": list(one.workers)} for one in report.summary.shared],
        },
        "forecast": None if report.forecast is None else forecasts.forecast_fields(report.forecast),
    }


# For people


def format_workers_report(report: WorkersReport) -> list[str]:
    """The workers in lines, then what they come to together."""
    lines = [""] if report.summary.workers or report.not_started else []
    for worker in report.summary.workers:
        lines += [f"--- worker {worker.name} (run {worker.run}): {worker.state}", f"  task: {_format_task(worker)}"]
        lines += [f"  {fact}" for fact in _format_facts(worker, report.statuses.get(worker.run))]
        lines += [_format_answer(worker).rstrip("\n")]
    for one in report.not_started:
        lines += [f"--- worker {one.branch or one.run}: not sent", f"  task: {truncate_line(one.task, LONGEST_TASK)}"]
        lines += [f"no answer: {_reason_not_started(one)}"]
    return lines + [f"  {line}" if number else f"{line}:" for number, line in enumerate(_format_summary(report))]


def format_workers_markdown(report: WorkersReport) -> list[str]:
    """The same as blocks of Markdown."""
    blocks = ["## Workers"] if report.summary.workers or report.not_started else []
    for worker in report.summary.workers:
        blocks += [f"### {escape_inline(worker.name)}: {worker.state}", f"Its task:\n{quote_block(worker.task)}"]
        blocks += format_bullets(_format_facts(worker, report.statuses.get(worker.run)))
        blocks += [quote_block(worker.answer) if worker.answer is not None else escape_inline(_format_answer(worker))]
    for one in report.not_started:
        blocks += [f"### {escape_inline(one.branch or one.run)}: not sent", f"Its task:\n{quote_block(one.task)}"]
        blocks += [escape_inline(f"no answer: {_reason_not_started(one)}")]
    together = list(_format_summary(report))
    return blocks + ([f"## {together[0]}", *format_bullets(together[1:])] if together else [])


def _format_task(worker: WorkerState) -> str:
    return truncate_line(worker.task, LONGEST_TASK)


def _format_answer(worker: WorkerState) -> str:
    return f"no answer: {worker.why}" if worker.answer is None else worker.answer


def _reason_not_started(one: SentWorker) -> str:
    return one.why or NOT_STARTED_REASON


def _format_facts(worker: WorkerState, status: WorktreeStatus | None) -> Iterator[str]:
    """What a worker did, in a few lines; `standing` is what it has in its checkout so far."""
    yield f"used {format_usage(worker.usage)} in {format_duration(worker.seconds)}"
    if worker.commit:
        commits = format_count(len(worker.commits), "commit")
        yield (
            f"{format_line_count(worker)} in {format_count(len(worker.files), 'file')}, {commits} on "
            f"{worker.errand.branch}"
        )
    elif status is not None:
        yield f"so far {format_line_count(worker, status)}, not committed"
    if worker.commits:
        yield f"commits: {', '.join(commit[:12] for commit in worker.commits)}"
    if worker.files:
        more = f" and {len(worker.files) - MOST_FILES} more" if len(worker.files) > MOST_FILES else ""
        yield f"files: {', '.join(worker.files[:MOST_FILES])}{more}"
    for check in worker.checks:
        yield f"checks {'passed' if check.passed else 'failed'}: {check.name}"


def _format_summary(report: WorkersReport) -> Iterator[str]:
    """What several workers come to, and what is to be expected of merging; nothing for no workers."""
    summary = report.summary
    if not summary.workers:
        return
    yield "Together"
    workers = format_count(len(summary.workers), "worker")
    yield (
        f"{workers}, +{summary.added} -{summary.removed}, {format_usage(summary.usage)} in "
        f"{format_duration(summary.seconds)}"
    )
    for one in summary.shared:
        yield f"{one.path} was changed by {', '.join(one.workers)}"
    if report.forecast is not None:
        yield from forecasts.format_forecast(report.forecast)
    if report.forecast_error:
        yield f"whether the branches would merge could not be tried: {report.forecast_error}"
