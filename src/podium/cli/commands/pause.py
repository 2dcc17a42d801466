"""`podium pause`: pause a run."""

from __future__ import annotations

import anyio
import click

from ...app import App
from ...files.settings import Settings
from ...runs import find
from ...runs.run_steering import pause_run
from ...runs.run_wait import wait_for_end_or_pause
from ...values.actor import Actor
from ...values.event import RunEnded, RunPaused
from ..terminal.global_options import get_command_actor
from ..terminal.text import print_to_stderr


@click.command("pause")
@click.argument("run")
def pause_command(run: str) -> None:
    """Pause RUN and wait until its current steps have finished. podium resume continues it.

    RUN can also be the branch or name of a worker in this repository.
    """
    settings = Settings.load()
    anyio.run(_pause_and_wait, settings, find.resolve(settings.store, run).run, get_command_actor())


async def _pause_and_wait(settings: Settings, run: str, by: Actor) -> None:
    """Pause a run, wait until its current steps have finished, and tell the user how that ended."""
    async with App(settings) as app:
        paused = await pause_run(app.runs, run, by=by)
    print_to_stderr(paused.text)
    if not paused.is_pending:
        return
    match await wait_for_end_or_pause(settings.store, run):
        case RunPaused():
            print_to_stderr(f"paused; continue with: podium resume {run}")
        case RunEnded(outcome=outcome):
            print_to_stderr(f"run {run} ended before it could be paused ({outcome})")
        case None:
            print_to_stderr(f"the process working on run {run} has exited; continue with: podium resume {run}")
