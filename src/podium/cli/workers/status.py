"""`podium workers status`: show one worker in detail."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import anyio
import click

from ...values.column import encode_rows
from ...values.event import SCHEMA
from ...values.plain_text import format_count
from ...views.worker_state import WorkerState
from ...workers.queries.worker_listing import WORKER_COLUMNS, format_line_count, format_worker_status, make_worker_rows
from ...workers.queries.worker_lookup import RepoContext, load_readable_states, read_worktree_statuses
from ...workspace.worktrees.worktree_status import WorktreeStatus
from ..terminal.agent_text import AgentText, format_output
from ..terminal.command_options import json_option
from ..terminal.text import (
    as_json,
    format_age,
    format_duration,
    format_usage,
    print_to_stderr,
    truncate_line,
)

LONGEST_TASK = 300


@click.command("status")
@click.argument("branch", required=False)
@json_option
@click.pass_obj
def workers_status_command(context: RepoContext, branch: str | None, is_json: bool) -> None:
    """Show the worker on BRANCH in detail; without BRANCH, show every worker that has not ended."""
    named = [context.load_worker(branch)] if branch else [one for one in context.load_workers() if not one.is_over]
    statuses = anyio.run(read_worktree_statuses, context.store, named)
    if is_json:
        items = encode_rows(make_worker_rows(named, statuses, now=time.time()), WORKER_COLUMNS)
        click.echo(as_json({"schema": SCHEMA, **(items[0] if branch else {"workers": items})}))
        return
    if not named:
        print_to_stderr("no active workers; run podium workers to list those that have ended")
    for number, worker in enumerate(named):
        before = {one.run: one.name for one in load_readable_states(context.store, worker.worker_task.after)}
        lines = format_worker_details(worker, statuses.get(worker.run), before, now=time.time())
        click.echo(format_output([*([""] if number else []), *lines], sys.stdout))


def format_worker_details(
    worker: WorkerState, status: WorktreeStatus | None, before: dict[str, str], *, now: float
) -> Iterator[str]:
    """Yield a worker's details as lines. `before` maps the runs that it depends on to the names of their workers."""
    worker_task = worker.worker_task
    yield f"{worker.name}  {format_worker_status(worker, now=now)}  (run {worker.run})"
    yield f"task:     {truncate_line(worker.task, LONGEST_TASK)}"
    role = f", role {worker_task.role}" if worker_task.role else ""
    yield f"agent:    {worker.agent}{role}{', read-only' if worker_task.is_reader else ''}"
    where = ", the repository itself" if worker_task.is_here else f", from {worker.base[:12]}" if worker.base else ""
    yield f"works in: {worker_task.path}{where}"
    for one in worker.works[1:]:
        yield f"also in:  {one.path}{f', from {one.base[:12]}' if one.base else ''}"
    if worker_task.after:
        yield f"after:    {', '.join(before.get(run, run) for run in worker_task.after)}"
    if worker.tool:
        yield f"tool:     {worker.tool}"
    if status is not None or worker.commit:
        commits = f", {format_count(len(worker.commits), 'commit')}" if worker.commit else ", not committed yet"
        files = len(worker.files) if status is None else len(status.files)
        changed = f"{format_line_count(worker, status)} in {format_count(files, 'file')}{commits}"
        yield f"lines:    {changed if files or not worker.commit else 'nothing changed'}"
    for check in worker.checks:
        yield f"checks:   {check.name} {'passed' if check.passed else 'failed'}"
    yield f"used:     {format_usage(worker.usage)}"
    again = f", restarted {format_count(worker.restarts, 'time')}" if worker.restarts else ""
    yield (
        f"time:     delegated {format_age(now - worker.delegated_at)}, {format_duration(worker.seconds)} of work{again}"
    )
    if worker.waiting_since:
        asked = ", ".join(f"podium approvals {id}" for id in worker.waiting_for)
        yield f"waiting:  {format_duration(now - worker.waiting_since)} for your answer: {asked}"
    if worker.unproved:
        yield f"unproved: {worker.unproved}"
    if worker.answer is not None:
        yield "answer:"
        yield AgentText(worker.answer.rstrip("\n"))
    else:
        yield f"no answer: {worker.why}"
