"""`podium workers`: list the workers in a repository and their states.

Each subcommand has its own module, which is imported when the subcommand is called.
"""

from __future__ import annotations

import shutil
import time
from importlib import import_module
from pathlib import Path

import anyio
import click

from ...store.worker_index import WorkerIndex
from ...values.column import encode_rows
from ...values.event import SCHEMA
from ...values.plain_text import format_count
from ...views.worker_state import WorkerState
from ...workers.queries.worker_listing import NO_WORKERS, WORKER_COLUMNS, make_worker_rows
from ...workers.queries.worker_lookup import RepoContext, load_readable_states, read_worktree_statuses
from ..terminal.command_options import json_option, repo_option
from ..terminal.table import format_table
from ..terminal.text import as_json, print_to_stderr

NAMES = ("status", "wait", "cancel", "logs", "output", "diff", "merge", "cleanup", "resume")
MOST_OVER = 20


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
    known = WorkerIndex(context.store).list_listed(None if is_all else context.root)
    workers = load_readable_states(context.store, (row.run for row in known))
    readable = {worker.run for worker in workers}
    for row in known:
        if row.run not in readable:
            print_to_stderr(f"worker {row.name or row.run} is not listed, because its run {row.run} cannot be read")
    listed = workers if is_all else filter_recent_workers(workers)
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


def filter_recent_workers(workers: list[WorkerState]) -> list[WorkerState]:
    """Return the unfinished workers and the most recent finished ones."""
    over = [worker.run for worker in workers if worker.is_over]
    old = set(over[: -MOST_OVER or None]) if len(over) > MOST_OVER else set()
    return [worker for worker in workers if worker.run not in old]
