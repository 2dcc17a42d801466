"""`podium workers resume`: have a commander continue workers that were interrupted."""

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
from ..terminal.command_options import json_option
from ..terminal.text import as_json, print_to_stderr


@click.command("resume")
@click.argument("branches", metavar="[BRANCH]...", nargs=-1)
@json_option
@click.pass_obj
def workers_resume_command(context: RepoContext, branches: tuple[str, ...], is_json: bool) -> None:
    """Start a commander that continues all interrupted workers.

    A paused worker is continued only if you give its name.
    """
    named = [context.find_worker(branch) for branch in branches]
    to_resume = named or [worker for worker in context.load_workers() if worker.state in ("queued", "resumable")]
    resumed = resume_workers(context.settings, to_resume)
    if is_json:
        items = [{"id": worker.run, "branch": worker.worker_task.branch} for worker in resumed]
        click.echo(as_json({"schema": SCHEMA, "workers": items}))
    elif not resumed:
        print_to_stderr("no worker to resume; podium workers lists them all")
    else:
        print_to_stderr(format_resumed_workers(resumed))


def format_resumed_workers(workers: Iterable[WorkerState]) -> str:
    """Return the message that says which workers are being resumed."""
    names = ", ".join(worker.name for worker in workers)
    return f"resuming {names} in the background; podium workers shows the state"


def resume_workers(settings: Settings, workers: Iterable[WorkerState]) -> list[WorkerState]:
    """Start a commander to continue workers, including paused ones. Raise Mistake if one has ended or is active."""
    from ...workers.delegate import start_commander  # imported here for start-up time: --help does not need it

    selected = list(workers)
    for worker in selected:
        if worker.is_over:
            raise Mistake(f"{worker.name} has ended ({worker.state}); start another worker with podium delegate")
        if worker.state not in INACTIVE_STATUSES:
            raise Mistake(f"{worker.name} is active ({worker.state}); podium workers logs {worker.name} -f follows it")
    if paused := [worker.run for worker in selected if worker.state == "paused"]:
        anyio.run(mark_runs_resumed, settings.store, paused)
    if selected:
        send_wakeup(ensure_socket_folder(settings.store), "owner")  # wake a commander that is already running
        start_commander(settings)
    return selected


async def mark_runs_resumed(store: Path, runs: list[str]) -> None:
    """Record that paused runs are resumed, and release them for a commander. Raise RunOver if one has ended."""
    from ...core.timeline import Timeline  # imported here for start-up time: most calls resume no paused runs
    from ...setup.preflight import require_not_ended
    from ...store.sqlite.store import SqliteStore

    async with SqliteStore(store) as opened:
        for run in runs:
            lease = await opened.claim_run(run)
            try:
                rows = await opened.read_rows(run)
                require_not_ended(run, decode_entry(rows[-1].line))  # the run may have been cancelled meanwhile
                timeline = Timeline(run, lease)
                timeline.load(rows)
                timeline.append(RunResumed(host=socket.gethostname(), pid=os.getpid()), scope="")
            finally:
                opened.release_run(lease)
            await timeline.wait_written()
