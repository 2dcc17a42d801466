"""Format the results of workers, individually and in total, as text and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from ...values.plain_text import format_count, join_some
from ...views.quoted_markdown import escape_inline, format_bullets, quote_block
from ...views.worker_state import WorkerState
from ...workers.queries.worker_listing import format_line_count
from ...workers.queries.workers_report import WorkersReport, _reason_not_started
from ...workspace.worktrees.worktree_status import WorktreeStatus
from ..terminal.agent_text import AgentText
from ..terminal.text import format_duration, format_usage, truncate_line
from .forecast import format_forecast

LONGEST_TASK = 200
MOST_FILES = 50


# Text and Markdown


def format_workers_report(report: WorkersReport) -> list[str]:
    """Return the report as lines: each worker, then the summary."""
    lines = [""] if report.summary.workers or report.not_started else []
    for worker in report.summary.workers:
        lines += [f"--- worker {worker.name} (run {worker.run}): {worker.state}", f"  task: {_format_task(worker)}"]
        lines += [f"  {fact}" for fact in _format_facts(worker, report.statuses.get(worker.run))]
        lines += [_format_answer(worker) if worker.answer is None else AgentText(worker.answer.rstrip("\n"))]
    for one in report.not_started:
        lines += [
            f"--- worker {one.branch or one.run}: not started",
            f"  task: {truncate_line(one.task, LONGEST_TASK)}",
        ]
        lines += [f"no answer: {_reason_not_started(one)}"]
    return lines + [f"  {line}" if number else f"{line}:" for number, line in enumerate(_format_summary(report))]


def format_workers_markdown(report: WorkersReport) -> list[str]:
    """Return the report as blocks of Markdown."""
    blocks = ["## Workers"] if report.summary.workers or report.not_started else []
    for worker in report.summary.workers:
        blocks += [f"### {escape_inline(worker.name)}: {worker.state}", f"Task:\n{quote_block(worker.task)}"]
        blocks += format_bullets(_format_facts(worker, report.statuses.get(worker.run)))
        blocks += [quote_block(worker.answer) if worker.answer is not None else escape_inline(_format_answer(worker))]
    for one in report.not_started:
        blocks += [f"### {escape_inline(one.branch or one.run)}: not started", f"Task:\n{quote_block(one.task)}"]
        blocks += [escape_inline(f"no answer: {_reason_not_started(one)}")]
    together = list(_format_summary(report))
    return blocks + ([f"## {together[0]}", *format_bullets(together[1:])] if together else [])


def _format_task(worker: WorkerState) -> str:
    return truncate_line(worker.task, LONGEST_TASK)


def _format_answer(worker: WorkerState) -> str:
    return f"no answer: {worker.why}" if worker.answer is None else worker.answer


def _format_facts(worker: WorkerState, status: WorktreeStatus | None) -> Iterator[str]:
    """Yield lines about a worker's usage, changes and checks. `status` is the state of its checkout, if it has one."""
    yield f"used {format_usage(worker.usage)} in {format_duration(worker.seconds)}"
    files = worker.files
    if worker.commit and not files:
        yield f"nothing changed on {worker.worker_task.branch}"
    elif worker.commit:
        commits = format_count(len(worker.commits), "commit")
        yield (
            f"{format_line_count(worker)} in {format_count(len(files), 'file')}, {commits} on "
            f"{worker.worker_task.branch}"
        )
    elif status is not None:
        yield f"{format_line_count(worker, status)} so far, not committed yet"
    if worker.commits:
        yield f"commits: {', '.join(commit[:12] for commit in worker.commits)}"
    if files:
        yield f"files: {join_some(files, MOST_FILES)}"
    for check in worker.checks:
        yield f"checks {'passed' if check.passed else 'failed'}: {check.name}"


def _format_summary(report: WorkersReport) -> Iterator[str]:
    """Yield the totals of all workers and the merge forecast. Yield nothing if there are no workers."""
    summary = report.summary
    if not summary.workers:
        return
    yield "Total"
    workers = format_count(len(summary.workers), "worker")
    yield (
        f"{workers}, +{summary.added} -{summary.removed}, {format_usage(summary.usage)} in "
        f"{format_duration(summary.seconds)}"
    )
    for one in summary.shared:
        yield f"{one.path} was changed by {', '.join(one.workers)}"
    if report.forecast is not None:
        yield from format_forecast(report.forecast)
    if report.forecast_error:
        yield f"cannot forecast whether the branches will merge: {report.forecast_error}"
