"""`podium workers cleanup`: put away the checkouts of workers that are over."""

from __future__ import annotations

from typing import Any

import click

from ...runs.worker_lookup import RepoContext
from ..commands import worktrees


@click.command("cleanup", params=worktrees.worktrees_cleanup_command.params)
@click.pass_context
def workers_cleanup_command(ctx: click.Context, /, **option_values: Any) -> None:
    """Remove the worktrees of workers that are over, and say of each what became of it.

    The same as podium worktrees cleanup: what has work in it that is neither committed nor merged stays.
    """
    context: RepoContext = ctx.obj
    ctx.obj = context.worktrees
    ctx.invoke(worktrees.worktrees_cleanup_command, **option_values)
