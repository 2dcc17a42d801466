"""`podium workers logs`: print a worker's timeline."""

from __future__ import annotations

import click

from ...workers.queries.worker_lookup import RepoContext
from ..commands import logs


@click.command("logs")
@click.argument("branch")
@click.option("-f", "--follow", "is_following", is_flag=True, help="Keep printing until the worker ends or pauses.")
@click.option("--jsonl", "is_jsonl", is_flag=True, help="Print every entry in full, one JSON object per line.")
@click.pass_context
def workers_logs_command(ctx: click.Context, branch: str, is_following: bool, is_jsonl: bool) -> None:
    """Print the timeline of the worker on BRANCH, one line per entry. Some entries appear only with --jsonl."""
    context: RepoContext = ctx.obj
    run = context.load_worker(branch).run
    ctx.invoke(logs.logs_command, run=run, is_following=is_following, is_jsonl=is_jsonl, after=0)
