"""`podium workers cleanup`: put away the checkouts of workers that are over."""

from __future__ import annotations

from typing import Any

import click

from ..commands import worktrees
from .worker_lookup import There


@click.command("cleanup", params=worktrees.clean.params)
@click.pass_context
def command(ctx: click.Context, /, **given: Any) -> None:
    """Remove the worktrees of workers that are over, and say of each what became of it.

    The same as podium worktrees cleanup: what has work in it that is neither committed nor merged stays.
    """
    there: There = ctx.obj
    ctx.obj = there.worktrees
    ctx.invoke(worktrees.clean, **given)
