"""`podium workers output`: what a worker answered."""

from __future__ import annotations

import click

from . import exits
from .say import say
from .text import visible
from .workers_look import There


@click.command("output")
@click.argument("branch")
@click.pass_obj
def command(there: There, branch: str) -> int:
    """Print the answer of the worker of BRANCH; where there is none, say why and exit with 1."""
    worker = there.worker(branch)
    if worker.answer is None:
        say(f"{worker.name} has no answer ({worker.state}): {worker.why}")
        return exits.GOAL_NOT_MET
    click.echo(visible(worker.answer))
    return exits.GOAL_MET
