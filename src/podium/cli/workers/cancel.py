"""`podium workers cancel`: end a worker now, with what there is."""

from __future__ import annotations

import anyio
import click

from ...store.sqlite.worker_index import Crew
from ...values.errors import Mistake, RunOver
from ...views.worker_state import WorkerState
from ..commands.stop import stopped
from ..terminal import exit_codes
from ..terminal.say import say
from .worker_lookup import There, seen


@click.command("cancel")
@click.argument("branch")
@click.pass_obj
def command(there: There, branch: str) -> int:
    """End the worker of BRANCH, whether it works or waits, and wait until it has ended.

    What it has changed until then is committed on its branch. The exit code is 1 where it came to another
    end meanwhile.
    """
    return cancelled(there, there.worker(branch))


def cancelled(there: There, worker: WorkerState) -> int:
    """End a worker that was seen so, and tell how it ended. Raises Mistake for one that is over."""
    _must_not_be_over(worker)
    try:
        ended = anyio.run(stopped, there.settings, worker.run)
    except RunOver:
        _must_not_be_over(*seen(there.store, [worker.run]))
        raise
    # A commander would note it as well, and there may be none.
    Crew(there.store).dismiss(worker.run)
    say(f"{worker.name} has ended ({ended.outcome}); podium workers diff {worker.name} shows what there is")
    return exit_codes.GOAL_MET if ended.outcome == "cancelled" else exit_codes.GOAL_NOT_MET


def _must_not_be_over(worker: WorkerState) -> None:
    if worker.is_over:
        raise Mistake(f"{worker.name} is over already ({worker.state}), so there is nothing to cancel")
