"""`podium stop`: end a run now, with what there is."""

from __future__ import annotations

from contextlib import suppress

import anyio
import click

from ...app import App
from ...runs.run_lookup import find_run_id, wait_for_end_or_pause
from ...setup.settings import Settings
from ...values.errors import RunOver
from ...values.event import RunEnded
from ..terminal.text import print_to_stderr


@click.command("stop")
@click.argument("run")
def stop_command(run: str) -> None:
    """End RUN with what there is, whoever works on it, and wait until it has ended.

    A stopped run cannot be resumed. To go on later, pause it, or interrupt it with Ctrl-C.
    RUN may also be the branch or name of a worker in this repository.
    """
    settings = Settings.load()
    id = find_run_id(settings.store, run)
    ended = anyio.run(stop_run_and_wait, settings, id)
    print_to_stderr(f"run {id} has ended ({ended.outcome}); podium show {id} shows what there is")


async def stop_run_and_wait(settings: Settings, run: str) -> RunEnded:
    """How the run ended, once it has."""
    async with App(settings) as app:
        await app.stop(run)
        print_to_stderr(f"run {run} is asked to stop")
        # Its process may die before it hears of it; then nobody is left to end the run but this one.
        while not isinstance(last := await wait_for_end_or_pause(settings.store, run), RunEnded):
            with suppress(RunOver):
                await app.stop(run)
    return last
