"""`podium stop`: stop a run and keep its partial results."""

from __future__ import annotations

from contextlib import suppress

import anyio
import click

from ...app import App
from ...files.settings import Settings
from ...runs import find
from ...runs.run_steering import stop_run
from ...runs.run_wait import wait_for_end_or_pause
from ...values.actor import Actor
from ...values.errors import RunOver
from ...values.event import RunEnded
from ..terminal.global_options import get_command_actor
from ..terminal.text import print_to_stderr


@click.command("stop")
@click.argument("run")
def stop_command(run: str) -> None:
    """Stop RUN, keep its partial results, and wait until it has ended.

    A stopped run cannot be resumed. To continue later, use podium pause, or interrupt the run with Ctrl-C.
    RUN can also be the branch or name of a worker in this repository.
    """
    settings = Settings.load()
    id = find.resolve(settings.store, run).run
    ended = anyio.run(stop_run_and_wait, settings, id, get_command_actor())
    print_to_stderr(f"run {id} has ended ({ended.outcome}); run podium show {id} to see its results")


async def stop_run_and_wait(settings: Settings, run: str, by: Actor) -> RunEnded:
    """Stop a run, wait until it has ended and return its last event."""
    async with App(settings) as app:
        print_to_stderr((await stop_run(app.runs, run, by=by)).text)
        # If the run's process exits before it handles the request, this process ends the run.
        while not isinstance(last := await wait_for_end_or_pause(settings.store, run), RunEnded):
            with suppress(RunOver):
                await stop_run(app.runs, run, by=by)
    return last
