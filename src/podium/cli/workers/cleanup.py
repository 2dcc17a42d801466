"""`podium workers cleanup`: remove the worktrees of workers that have ended."""

from __future__ import annotations

from typing import Any

import click

from ...workers.queries.worker_lookup import RepoContext
from ..commands import worktrees


@click.command("cleanup", params=worktrees.worktrees_cleanup_command.params)
@click.pass_context
def workers_cleanup_command(ctx: click.Context, /, **option_values: Any) -> None:
    """Remove the worktrees of workers that have ended, and report the result for each.

    Same as podium worktrees cleanup: worktrees with uncommitted or unmerged work are kept unless --force is given.
    """
    context: RepoContext = ctx.obj
    ctx.obj = context.worktrees
    ctx.invoke(worktrees.worktrees_cleanup_command, **option_values)
