"""`podium workers cancel`: end a worker now, with what there is."""

from __future__ import annotations

import anyio
import click

from ..errors import Mistake, RunOver
from ..store.workers import Crew
from ..worker_state import WorkerState
from . import exits
from .say import say
from .stop import stopped
from .workers_look import There, seen


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
    return exits.GOAL_MET if ended.outcome == "cancelled" else exits.GOAL_NOT_MET


def _must_not_be_over(worker: WorkerState) -> None:
    if worker.is_over:
        raise Mistake(f"{worker.name} is over already ({worker.state}), so there is nothing to cancel")
