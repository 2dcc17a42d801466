"""`podium workers output`: what a worker answered."""

from __future__ import annotations

import click

from ..terminal import exit_codes
from ..terminal.say import say
from ..terminal.text import visible
from .worker_lookup import There


@click.command("output")
@click.argument("branch")
@click.pass_obj
def command(there: There, branch: str) -> int:
    """Print the answer of the worker of BRANCH; where there is none, say why and exit with 1."""
    worker = there.worker(branch)
    if worker.answer is None:
        say(f"{worker.name} has no answer ({worker.state}): {worker.why}")
        return exit_codes.GOAL_NOT_MET
    click.echo(visible(worker.answer))
    return exit_codes.GOAL_MET
