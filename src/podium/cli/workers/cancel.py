"""`podium workers cancel`: stop a worker and keep its partial results."""

from __future__ import annotations

import anyio
import click

from ...values.actor import Actor
from ...values.errors import Mistake, RunOver
from ...views.worker_state import WorkerState
from ...workers.queries.worker_lookup import RepoContext, load_worker_states
from ..commands.stop import stop_run_and_wait
from ..terminal import exit_codes
from ..terminal.global_options import get_command_actor
from ..terminal.text import print_to_stderr


@click.command("cancel")
@click.argument("branch")
@click.pass_obj
def workers_cancel_command(context: RepoContext, branch: str) -> int:
    """Stop the worker on BRANCH and wait until it has ended.

    Its changes so far are committed to its branch. The exit code is 1 if it ended before it was cancelled.
    """
    return cancel_worker(context, context.load_worker(branch), get_command_actor())


def cancel_worker(context: RepoContext, worker: WorkerState, by: Actor) -> int:
    """Stop a worker, print how it ended and return the exit code. Raise Mistake if the worker has already ended."""
    _require_not_over(worker)
    try:
        ended = anyio.run(stop_run_and_wait, context.settings, worker.run, by)
    except RunOver:
        _require_not_over(*load_worker_states(context.store, [worker.run]))
        raise
    print_to_stderr(
        f"{worker.name} has ended ({ended.outcome}); run podium workers status {worker.name} to see the details"
    )
    return exit_codes.GOAL_MET if ended.outcome == "cancelled" else exit_codes.GOAL_NOT_MET


def _require_not_over(worker: WorkerState) -> None:
    if worker.is_over:
        raise Mistake(f"{worker.name} has already ended ({worker.state}), so there is nothing to cancel")
