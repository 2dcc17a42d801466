"""`podium workers resume`: have a commander go on with workers that were left."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from pathlib import Path

import anyio
import click

from ...runs.worker_lookup import RepoContext
from ...setup.settings import Settings
from ...store.wakeup import ensure_socket_folder, send_wakeup
from ...values.errors import Mistake
from ...values.event import SCHEMA, RunResumed, decode_entry
from ...views.worker_state import INACTIVE_STATUSES, WorkerState
from ..terminal.options import json_option
from ..terminal.text import as_json, print_to_stderr


@click.command("resume")
@click.argument("branches", metavar="[BRANCH]...", nargs=-1)
@json_option
@click.pass_obj
def workers_resume_command(context: RepoContext, branches: tuple[str, ...], is_json: bool) -> None:
    """Have a commander go on with what was left: with the workers that nobody works on.

    A paused worker goes on only when it is named.
    """
    named = [context.find_worker(branch) for branch in branches]
    to_resume = named or [worker for worker in context.load_workers() if worker.state in ("queued", "resumable")]
    resumed = resume_workers(context.settings, to_resume)
    if is_json:
        items = [{"id": worker.run, "branch": worker.errand.branch} for worker in resumed]
        click.echo(as_json({"schema": SCHEMA, "workers": items}))
    elif not resumed:
        print_to_stderr("no worker was left; podium workers shows how they stand")
    else:
        print_to_stderr(format_resumed_workers(resumed))


def format_resumed_workers(workers: Iterable[WorkerState]) -> str:
    """What becomes of workers that are gone on with."""
    names = ", ".join(worker.name for worker in workers)
    return f"the commander goes on with {names} in the background; podium workers shows how it stands"


def resume_workers(settings: Settings, workers: Iterable[WorkerState]) -> list[WorkerState]:
    """Have a commander go on with these workers, paused ones too. Raises Mistake for one that is over or at work."""
    from ...workers.delegate import start_commander  # here, because asking for help needs none of it

    selected = list(workers)
    for worker in selected:
        if worker.is_over:
            raise Mistake(f"{worker.name} is over ({worker.state}); podium delegate hires another worker")
        if worker.state not in INACTIVE_STATUSES:
            raise Mistake(f"{worker.name} is at work ({worker.state}); podium workers logs {worker.name} -f follows it")
    if paused := [worker.run for worker in selected if worker.state == "paused"]:
        anyio.run(mark_runs_resumed, settings.store, paused)
    if selected:
        send_wakeup(ensure_socket_folder(settings.store), "owner")  # for a commander that is there already
        start_commander(settings)
    return selected


async def mark_runs_resumed(store: Path, runs: list[str]) -> None:
    """Note that runs are paused no longer, and leave them to whoever works on them. Raises RunOver."""
    from ...core.timeline import Timeline  # for start-up time: listing needs none of it
    from ...setup.preflight import require_not_ended
    from ...store.sqlite.store import SqliteStore

    async with SqliteStore(store) as opened:
        for run in runs:
            lease = await opened.claim_run(run)
            try:
                rows = await opened.read_rows(run)
                require_not_ended(run, decode_entry(rows[-1].line))  # somebody may have cancelled it meanwhile
                timeline = Timeline(run, lease)
                timeline.load(rows)
                timeline.append(RunResumed(host=socket.gethostname(), pid=os.getpid()), scope="")
            finally:
                opened.release_run(lease)
            await timeline.wait_written()
