"""`podium workers resume`: have a commander go on with workers that were left."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from pathlib import Path

import anyio
import click

from ...setup.settings import Settings
from ...store.wakeup import bell_folder, ring_once
from ...values.errors import Mistake
from ...values.event import SCHEMA, RunResumed, decode
from ...views.worker_state import AT_REST, WorkerState
from ..terminal.say import say
from ..terminal.text import as_json
from .worker_lookup import There, as_object


@click.command("resume")
@click.argument("branches", metavar="[BRANCH]...", nargs=-1)
@as_object
@click.pass_obj
def command(there: There, branches: tuple[str, ...], is_json: bool) -> None:
    """Have a commander go on with what was left: with the workers that nobody works on.

    A paused worker goes on only when it is named.
    """
    named = [there.worker(branch) for branch in branches]
    left = named or [worker for worker in there.workers() if worker.state in ("queued", "resumable")]
    gone_on = go_on(there.settings, left)
    if is_json:
        told = [{"id": worker.run, "branch": worker.errand.branch} for worker in gone_on]
        click.echo(as_json({"schema": SCHEMA, "workers": told}))
    elif not gone_on:
        say("no worker was left; podium workers shows how they stand")
    else:
        say(told_of(gone_on))


def told_of(workers: Iterable[WorkerState]) -> str:
    """What becomes of workers that are gone on with."""
    names = ", ".join(worker.name for worker in workers)
    return f"the commander goes on with {names} in the background; podium workers shows how it stands"


def go_on(settings: Settings, workers: Iterable[WorkerState]) -> list[WorkerState]:
    """Have a commander go on with these workers, paused ones too. Raises Mistake for one that is over or at work."""
    from ...workers.delegate import start_commander  # here, because asking for help needs none of it

    them = list(workers)
    for worker in them:
        if worker.is_over:
            raise Mistake(f"{worker.name} is over ({worker.state}); podium delegate hires another worker")
        if worker.state not in AT_REST:
            raise Mistake(f"{worker.name} is at work ({worker.state}); podium workers logs {worker.name} -f follows it")
    if paused := [worker.run for worker in them if worker.state == "paused"]:
        anyio.run(let_go_on, settings.store, paused)
    if them:
        ring_once(bell_folder(settings.store), "owner")  # for a commander that is there already
        start_commander(settings)
    return them


async def let_go_on(store: Path, runs: list[str]) -> None:
    """Note that runs are paused no longer, and leave them to whoever works on them. Raises RunOver."""
    from ...core.timeline import Timeline
    from ...setup.preflight import must_not_have_ended
    from ...store.sqlite.store import SqliteStore

    async with SqliteStore(store) as opened:
        for run in runs:
            lease = await opened.claim(run)
            try:
                rows = await opened.rows(run)
                must_not_have_ended(run, decode(rows[-1].line))  # somebody may have cancelled it meanwhile
                timeline = Timeline(run, lease)
                timeline.load(rows)
                timeline.append(RunResumed(host=socket.gethostname(), pid=os.getpid()), scope="")
            finally:
                opened.release(lease)
            await timeline.settled()
