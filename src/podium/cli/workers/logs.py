"""`podium workers logs`: the timeline of a worker."""

from __future__ import annotations

import click

from ..commands import logs
from .worker_lookup import There


@click.command("logs")
@click.argument("branch")
@click.option("-f", "--follow", "is_following", is_flag=True, help="Go on printing until it is over or paused.")
@click.option("--jsonl", "is_jsonl", is_flag=True, help="Print every entry in full, as a JSON object a line.")
@click.pass_context
def command(ctx: click.Context, branch: str, is_following: bool, is_jsonl: bool) -> None:
    """Print the timeline of the worker of BRANCH, one line for each change of state."""
    there: There = ctx.obj
    run = there.worker(branch).run
    ctx.invoke(logs.command, run=run, is_following=is_following, is_jsonl=is_jsonl, after=0)
