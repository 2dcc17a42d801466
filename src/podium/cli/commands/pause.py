"""`podium pause`: pause a run."""

from __future__ import annotations

import anyio
import click

from ...runs import find
from ...runs.run_lookup import derive_run_state, is_over, open_reader
from ...runs.run_wait import wait_for_end_or_pause
from ...setup.settings import Settings
from ...store.mailbox import post_to_mailbox
from ...system.username import get_local_actor
from ...values.errors import Mistake, RunHeld
from ...values.event import PauseAsked, RunEnded, RunPaused
from ..terminal.text import print_to_stderr


async def _pause_idle_run(settings: Settings, run: str) -> bool:
    """Pause a run that no process is working on. Return False if a process has claimed the run in the meantime."""
    from ...app import App  # imported here for start-up time: pausing a run in another process does not need it

    async with App(settings) as app:
        try:
            await app.launcher.pause_run(run, by=get_local_actor("command"))
        except RunHeld:
            return False
    return True


@click.command("pause")
@click.argument("run")
def pause_command(run: str) -> None:
    """Pause RUN and wait until its current steps have finished. podium resume continues it.

    RUN can also be the branch or name of a worker in this repository.
    """
    settings = Settings.load()
    store = settings.store
    with open_reader(store) as reader:
        summary = reader.read_summary(find.resolve(reader, run).run)
    id, word = summary.id, derive_run_state(summary)
    if is_over(summary):
        raise Mistake(f"run {id} has ended ({word}) and cannot be paused")
    if word == "paused":
        print_to_stderr(f"run {id} is already paused; continue it with: podium resume {id}")
        return
    if word != "running" and anyio.run(_pause_idle_run, settings, id):
        print_to_stderr(f"paused; continue with: podium resume {id}")
        return
    post_to_mailbox(store, id, PauseAsked())
    print_to_stderr(f"pausing run {id}; its current steps finish first")
    match anyio.run(wait_for_end_or_pause, store, id):
        case RunPaused():
            print_to_stderr(f"paused; continue with: podium resume {id}")
        case RunEnded(outcome=outcome):
            print_to_stderr(f"run {id} ended before it could be paused ({outcome})")
        case None:
            print_to_stderr(f"the process working on run {id} has exited; continue with: podium resume {id}")
