"""`podium workers output`: print a worker's answer."""

from __future__ import annotations

import sys

import click

from ...workers.queries.worker_lookup import RepoContext
from ..terminal import exit_codes
from ..terminal.agent_text import format_agent_text
from ..terminal.text import print_to_stderr


@click.command("output")
@click.argument("branch")
@click.pass_obj
def workers_output_command(context: RepoContext, branch: str) -> int:
    """Print the answer from the worker on BRANCH. If there is none, print why and exit with code 1."""
    worker = context.load_worker(branch)
    if worker.answer is None:
        print_to_stderr(f"{worker.name} has no answer ({worker.state}): {worker.why}")
        return exit_codes.GOAL_NOT_MET
    click.echo(format_agent_text(worker.answer, sys.stdout))
    return exit_codes.GOAL_MET
