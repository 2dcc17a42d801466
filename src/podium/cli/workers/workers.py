"""`podium workers`: list the workers in a repository, and show one in detail."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import click

from ...store.worker_index import WorkerIndex
from ...values.column import encode_rows
from ...values.event import SCHEMA
from ...values.plain_text import format_count
from ...views.worker_state import WorkerState
from ...workers.queries.worker_listing import (
    NO_WORKERS,
    WORKER_COLUMNS,
    format_line_count,
    format_worker_status,
    make_worker_rows,
)
from ...workers.queries.worker_lookup import RepoContext, load_readable_states, read_worktree_statuses
from ...workspace.worktrees.worktree_status import WorktreeStatus
from ..lazy_group import LazyCommandGroup
from ..output.agent_text import AgentText, format_output
from ..output.command_options import json_option, repo_option
from ..output.table import format_table
from ..output.text import (
    as_json,
    format_age,
    format_duration,
    format_usage,
    print_to_stderr,
    truncate_line,
)

LONGEST_TASK = 300
NAMES = ("status", "wait", "cancel", "logs", "output", "diff", "merge", "cleanup", "resume")
MOST_OVER = 20


@click.group("workers", cls=LazyCommandGroup, subcommands=NAMES, invoke_without_command=True)
@click.option(
    "--all",
    "is_all",
    is_flag=True,
    help=f"Include all repositories, and list all finished workers, not only the last {MOST_OVER}.",
)
@repo_option
@json_option
@click.pass_context
def workers_command(ctx: click.Context, is_all: bool, repo: Path | None, is_json: bool) -> None:
    """List the workers in this repository with their state, current tool, changed lines and cost.

    In the subcommands, BRANCH can also be a prefix of a worker's run id, or last for the newest worker.
    """
    ctx.obj = context = RepoContext(repo)
    if ctx.invoked_subcommand is not None:
        if is_json or is_all:
            option, subcommand = "--json" if is_json else "--all", ctx.invoked_subcommand
            raise click.UsageError(
                f"{option} cannot come before {subcommand}; run podium workers {subcommand} --help to list its options"
            )
        return
    known = WorkerIndex(context.store).list_listed(None if is_all else context.root)
    workers = load_readable_states(context.store, (row.run for row in known))
    readable = {worker.run for worker in workers}
    for row in known:
        if row.run not in readable:
            print_to_stderr(f"worker {row.name or row.run} is not listed, because its run {row.run} cannot be read")
    listed = workers if is_all else _filter_recent_workers(workers)
    statuses = anyio.run(read_worktree_statuses, context.store, listed)
    rows = make_worker_rows(listed, statuses, now=time.time(), names_repo=is_all)
    if is_json:
        click.echo(as_json({"schema": SCHEMA, "workers": encode_rows(rows, WORKER_COLUMNS)}))
    elif not known:
        print_to_stderr(NO_WORKERS)
    elif workers:
        for line in format_table(rows, WORKER_COLUMNS, now=time.time(), most=shutil.get_terminal_size().columns):
            click.echo(line)
        if missing := len(workers) - len(listed):
            print_to_stderr(
                f"not shown: {format_count(missing, 'older finished worker')}; run podium workers --all to list all"
            )


def _filter_recent_workers(workers: list[WorkerState]) -> list[WorkerState]:
    """Return the unfinished workers and the most recent finished ones."""
    over = [worker.run for worker in workers if worker.is_over]
    old = set(over[: -MOST_OVER or None]) if len(over) > MOST_OVER else set()
    return [worker for worker in workers if worker.run not in old]


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
        lines = _format_worker_details(worker, statuses.get(worker.run), before, now=time.time())
        click.echo(format_output([*([""] if number else []), *lines], sys.stdout))


def _format_worker_details(
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
