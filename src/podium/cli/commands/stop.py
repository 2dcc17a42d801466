"""`podium stop`: stop a run and keep its partial results."""

from __future__ import annotations

from contextlib import suppress

import anyio
import click

from ...app import App
from ...runs import find
from ...runs.run_wait import wait_for_end_or_pause
from ...setup.settings import Settings
from ...values.errors import RunOver
from ...values.event import RunEnded
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
    ended = anyio.run(stop_run_and_wait, settings, id)
    print_to_stderr(f"run {id} has ended ({ended.outcome}); run podium show {id} to see its results")


async def stop_run_and_wait(settings: Settings, run: str) -> RunEnded:
    """Stop a run, wait until it has ended and return its last event."""
    async with App(settings) as app:
        await app.stop(run)
        print_to_stderr(f"stopping run {run}")
        # If the run's process exits before it handles the request, this process ends the run.
        while not isinstance(last := await wait_for_end_or_pause(settings.store, run), RunEnded):
            with suppress(RunOver):
                await app.stop(run)
    return last
