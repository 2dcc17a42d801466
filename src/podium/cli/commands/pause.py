"""`podium pause`: let a run begin nothing more for now."""

from __future__ import annotations

import anyio
import click

from ...runs.run_lookup import found, looking
from ...runs.run_rest import wait_for_rest
from ...runs.run_state import is_over, state
from ...setup.settings import Settings
from ...store.sqlite.mailbox import post
from ...values.errors import Mistake, RunHeld
from ...values.event import PauseAsked, RunEnded, RunPaused
from ..terminal.say import say


async def _rested(settings: Settings, run: str) -> bool:
    """Pause a run that nobody works on; False where somebody does by now."""
    from ...app import App  # here, because a run that somebody works on needs none of it

    async with App(settings) as app:
        try:
            await app.rest(run)
        except RunHeld:
            return False
    return True


@click.command("pause")
@click.argument("run")
def command(run: str) -> None:
    """Let RUN begin nothing more, and wait until what is under way has ended. podium resume goes on with it.

    RUN may also be the branch or name of a worker in this repository.
    """
    settings = Settings.load()
    store = settings.store
    with looking(store) as reader:
        summary = reader.summary(found(store, run))
    id, word = summary.id, state(summary)
    if is_over(summary):
        raise Mistake(f"run {id} has ended ({word}), so there is nothing to pause")
    if word == "paused":
        say(f"run {id} is paused already; go on with: podium resume {id}")
        return
    if word != "running" and anyio.run(_rested, settings, id):
        say(f"paused; go on with: podium resume {id}")
        return
    post(store, id, PauseAsked())
    say(f"run {id} is asked to pause; what is under way ends first")
    match anyio.run(wait_for_rest, store, id):
        case RunPaused():
            say(f"paused; go on with: podium resume {id}")
        case RunEnded(outcome=outcome):
            say(f"run {id} has ended meanwhile ({outcome})")
        case None:
            say(f"the process that worked on run {id} is gone; go on with: podium resume {id}")
