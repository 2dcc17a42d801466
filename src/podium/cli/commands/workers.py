"""`podium workers`: list the workers in a repository and their states.

Each subcommand has its own module, which is imported when the subcommand is called.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

import anyio
import click

from ...runs.worker_lookup import RepoContext, load_readable_states, read_worktree_statuses, worker_fields
from ...store.worker_index import WorkerIndex
from ...system.locations import format_path
from ...values.event import SCHEMA
from ...values.plain_text import format_count
from ...values.worker_task import WorkerTask
from ...views.worker_state import WorkerState
from ...workspace.worktrees.worktree_status import WorktreeStatus
from ..terminal.command_options import json_option, repo_option
from ..terminal.text import as_json, drop_columns, escape_for_terminal, fit_columns, format_duration, print_to_stderr
from ..workers.worker_text import NO_WORKERS, first_line, format_line_count, format_worker_cost, format_worker_status

NAMES = ("status", "wait", "cancel", "logs", "output", "diff", "merge", "cleanup", "resume")
MOST_OVER = 20
NARROWEST_TASK = 12
OPTIONAL_COLUMNS = ("TOKENS", "TOOL", "COST", "LINES", "WAITS")
"""Columns that are dropped on a narrow terminal, in this order."""


class WorkersCommandGroup(click.Group):
    """The subcommands of `podium workers`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(NAMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in NAMES:
            return None
        if cmd_name == "merge":
            from .merge import merge_command  # imported here to keep start-up fast: the list does not need it

            return merge_command
        module = import_module(f"podium.cli.workers.{cmd_name}")
        command: click.Command = getattr(module, f"workers_{cmd_name}_command")
        return command


@click.group("workers", cls=WorkersCommandGroup, invoke_without_command=True)
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
    rows = WorkerIndex(context.store).list_listed(None if is_all else context.root)
    workers = load_readable_states(context.store, (row.run for row in rows))
    readable = {worker.run for worker in workers}
    for row in rows:
        if row.run not in readable:
            print_to_stderr(f"worker {row.name or row.run} is not listed, because its run {row.run} cannot be read")
    listed = workers if is_all else filter_recent_workers(workers)
    statuses = anyio.run(read_worktree_statuses, context.store, listed)
    if is_json:
        items = [worker_fields(worker, statuses.get(worker.run)) for worker in listed]
        click.echo(as_json({"schema": SCHEMA, "workers": items}))
    elif not rows:
        print_to_stderr(NO_WORKERS)
    elif workers:
        most = shutil.get_terminal_size().columns
        click.echo(
            escape_for_terminal(format_workers_table(listed, statuses, now=time.time(), most=most, with_place=is_all))
        )
        if missing := len(workers) - len(listed):
            print_to_stderr(
                f"not shown: {format_count(missing, 'older finished worker')}; run podium workers --all to list all"
            )


def filter_recent_workers(workers: list[WorkerState]) -> list[WorkerState]:
    """Return the unfinished workers and the most recent finished ones."""
    over = [worker.run for worker in workers if worker.is_over]
    old = set(over[: -MOST_OVER or None]) if len(over) > MOST_OVER else set()
    return [worker for worker in workers if worker.run not in old]


def format_worker_branch(worker_task: WorkerTask) -> str:
    """Return a worker's branch and the names of its additional repositories.

    For a worker without a checkout, return its name and its kind, `(here)` or `(reader)`.
    """
    if worker_task.has_checkout:
        return " + ".join((worker_task.branch, *(one.name for one in worker_task.also)))
    return f"{worker_task.name} {'(here)' if worker_task.is_here else '(reader)'}".lstrip()


def format_workers_table(
    workers: list[WorkerState],
    statuses: Mapping[str, WorktreeStatus],
    *,
    now: float,
    most: int,
    with_place: bool = False,
) -> str:
    """Return a table of workers. The task gets the remaining width. On a narrow terminal, columns are dropped."""
    rows = [["WORKER", "BRANCH", "STATE", "TOOL", "LINES", "TOKENS", "COST", "WAITS", "TASK"]]
    for worker in workers:
        where = f"{format_path(Path(worker.worker_task.root))}: " if with_place else ""
        rows.append(
            [
                worker.run,
                escape_for_terminal(format_worker_branch(worker.worker_task)),
                format_worker_status(worker),
                escape_for_terminal(worker.tool) or "-",
                format_line_count(worker, statuses.get(worker.run)),
                f"{worker.usage.tokens:,}",
                format_worker_cost(worker),
                format_duration(now - worker.waiting_since) if worker.waiting_since else "-",
                f"{where}{escape_for_terminal(first_line(worker.task))}",
            ]
        )
    tasks = [row.pop() for row in rows]
    narrow_rows = drop_columns(rows, most=most - NARROWEST_TASK - 2, spare=OPTIONAL_COLUMNS)
    full_rows = [[*row, task] for row, task in zip(narrow_rows, tasks, strict=True)]
    return "\n".join(fit_columns(full_rows, most=most, least=NARROWEST_TASK))
