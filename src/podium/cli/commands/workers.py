"""`podium workers`: who works on what in a repository, and how each stands.

What else can be done with workers lives in a module of its own each, which is imported when it is called.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

import anyio
import click

from ...store.sqlite.worker_index import Crew
from ...system.locations import shown
from ...values.event import SCHEMA
from ...values.worker_task import Errand
from ...views.worker_state import WorkerState
from ...workspace.worktrees.worktree_status import Standing
from ..terminal.measure import fitted, leaner, span
from ..terminal.say import say
from ..terminal.text import as_json, visible
from ..workers.worker_lookup import (
    NOBODY,
    There,
    as_object,
    at_work,
    fields,
    first_line,
    in_repo,
    line_count,
    money,
    seen,
)

NAMES = ("status", "wait", "cancel", "logs", "output", "diff", "merge", "cleanup", "resume")
ELSEWHERE = {"merge": "podium.cli.commands.merge"}
MOST_OVER = 20
NARROWEST_TASK = 12
SPARE = ("TOKENS", "TOOL", "COST", "LINES", "WAITS")
"""What a narrow terminal can do without, from the first on."""


class Parts(click.Group):
    """What can be done with workers."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(NAMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in NAMES:
            return None
        module = ELSEWHERE.get(cmd_name, f"podium.cli.workers.{cmd_name}")
        command: click.Command = import_module(module).command
        return command


@click.group("workers", cls=Parts, invoke_without_command=True)
@click.option("--all", "is_all", is_flag=True, help=f"Of all repositories, and more than {MOST_OVER} that are over.")
@in_repo
@as_object
@click.pass_context
def command(ctx: click.Context, is_all: bool, repo: Path | None, is_json: bool) -> None:
    """List the workers of this repository: what each is doing, with what, what it brought and cost.

    BRANCH, wherever it is asked for, may also be the beginning of the id of a worker's run.
    """
    ctx.obj = there = There(repo)
    if ctx.invoked_subcommand is not None:
        if is_json or is_all:
            raise click.UsageError(f"{'--json' if is_json else '--all'} does not go before {ctx.invoked_subcommand}")
        return
    workers = seen(there.store, (hired.run for hired in Crew(there.store).all())) if is_all else there.workers()
    listed = workers if is_all else recent(workers)
    standing = anyio.run(at_work, there.store, listed)
    if is_json:
        told = [fields(worker, standing.get(worker.run)) for worker in listed]
        click.echo(as_json({"schema": SCHEMA, "workers": told}))
    elif not workers:
        say(NOBODY)
    else:
        most = shutil.get_terminal_size().columns
        click.echo(visible(table(listed, standing, now=time.time(), most=most, with_place=is_all)))
        if missing := len(workers) - len(listed):
            say(f"left out: {missing} older that are over; podium workers --all lists them")


def recent(workers: list[WorkerState]) -> list[WorkerState]:
    """Those that are not over, and the last of those that are."""
    over = [worker.run for worker in workers if worker.is_over]
    old = set(over[: -MOST_OVER or None]) if len(over) > MOST_OVER else set()
    return [worker for worker in workers if worker.run not in old]


def place(errand: Errand) -> str:
    """The branch of a worker; what it is instead of on one, where it is on none."""
    if errand.has_checkout:
        return errand.branch
    return f"{errand.name} {'(here)' if errand.is_here else '(reader)'}".lstrip()


def table(
    workers: list[WorkerState], standing: Mapping[str, Standing], *, now: float, most: int, with_place: bool = False
) -> str:
    """Workers in columns; the task takes what the others leave of the width, and where that is too little some go."""
    rows = [["WORKER", "BRANCH", "STATE", "TOOL", "LINES", "TOKENS", "COST", "WAITS", "TASK"]]
    for worker in workers:
        where = f"{shown(Path(worker.errand.root))}: " if with_place else ""
        rows.append(
            [
                worker.run,
                visible(place(worker.errand)),
                worker.state,
                visible(worker.tool) or "-",
                line_count(worker, standing.get(worker.run)),
                f"{worker.usage.tokens:,}",
                money(worker),
                span(now - worker.waiting_since) if worker.waiting_since else "-",
                f"{where}{visible(first_line(worker.task))}",
            ]
        )
    tasks = [row.pop() for row in rows]
    lean = leaner(rows, most=most - NARROWEST_TASK - 2, spare=SPARE)
    told = [[*row, task] for row, task in zip(lean, tasks, strict=True)]
    return "\n".join(fitted(told, most=most, least=NARROWEST_TASK))
