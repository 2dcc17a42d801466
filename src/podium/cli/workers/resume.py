"""`podium workers resume`: have a commander continue workers that were interrupted."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import anyio
import click

from ...files.settings import Settings
from ...values.event import SCHEMA
from ...views.worker_state import WorkerState
from ...workers.queries.worker_lookup import RepoContext
from ..terminal.command_options import json_option
from ..terminal.global_options import get_command_actor
from ..terminal.text import as_json, print_to_stderr


@click.command("resume")
@click.argument("branches", metavar="[BRANCH]...", nargs=-1)
@json_option
@click.pass_obj
def workers_resume_command(context: RepoContext, branches: tuple[str, ...], is_json: bool) -> None:
    """Start a commander that continues the workers on BRANCH or, by default, all interrupted and queued workers.

    A paused worker is continued only if you specify it. A worker that is waiting for a provider's limit to reset
    continues automatically after the reset; specify the worker to continue it now.
    """
    named = [context.load_worker(branch) for branch in branches]
    states = ("queued", "resumable", "waiting_limit")
    to_resume = named or [worker for worker in context.load_workers() if worker.state in states]
    resumed = resume_workers(context.settings, to_resume, wakes_early=bool(named))
    if is_json:
        items = [{"id": worker.run, "branch": worker.worker_task.branch} for worker in resumed]
        click.echo(as_json({"schema": SCHEMA, "workers": items}))
    elif not resumed:
        print_to_stderr("no workers to resume; see podium workers for their states")
    else:
        print_to_stderr(format_resumed_workers(resumed))


def format_resumed_workers(workers: Iterable[WorkerState]) -> str:
    """Return the message that says which workers are being resumed."""
    names = ", ".join(worker.name for worker in workers)
    return f"resuming {names} in the background; run podium workers to see the state"


def resume_workers(
    settings: Settings, workers: Iterable[WorkerState], *, wakes_early: bool = True
) -> list[WorkerState]:
    """Start a commander to continue workers, including paused ones. Raise Mistake if one has ended or is active.

    With `wakes_early`, workers that are waiting for a provider's limit to reset continue now, without waiting any
    longer.
    """
    from ...workers import worker_resumption  # imported here for start-up time: --help does not need it

    return anyio.run(
        partial(
            worker_resumption.resume_workers,
            settings,
            list(workers),
            by=get_command_actor(),
            wakes_early=wakes_early,
        )
    )
