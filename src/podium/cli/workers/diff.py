"""`podium workers diff`: show a worker's changes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio
import click

from ...runs.worker_lookup import RepoContext
from ...values.errors import Mistake
from ...views.worker_state import WorkerState
from ...workspace.git.repository import GitLocation, read_git_output
from ...workspace.git.revision import branch_tip
from ...workspace.git.snapshot import take_snapshot
from ..terminal.text import escape_for_terminal, print_to_stderr

DIFF_TIMEOUT_SECONDS = 300.0


@click.command("diff")
@click.argument("branch")
@click.option("--stat", "is_stat", is_flag=True, help="Show only the files and how many lines changed in each.")
@click.pass_obj
def workers_diff_command(context: RepoContext, branch: str, is_stat: bool) -> None:
    """Print what the worker on BRANCH changed since its base: in its checkout or, once it has ended, on its branch."""
    worker = context.find_worker(branch)
    if worker.worker_task.is_reader:
        raise Mistake(f"{worker.name} is read-only and has no changes; podium workers output shows its answer")
    if worker.worker_task.is_here:
        raise Mistake(f"{worker.name} works in the repository itself, without its own branch; use git diff")
    if not worker.base:
        raise Mistake(f"{worker.name} has no checkout yet ({worker.state}), so it has no changes")
    is_gone = not Path(worker.worker_task.path).is_dir()
    text = anyio.run(diff_worker, context, worker, is_stat, not worker.is_over and not is_gone)
    if is_gone and not worker.is_over:
        print_to_stderr(f"{worker.name}: {worker.worker_task.path} no longer exists; showing its branch instead")
    if not text:
        print_to_stderr(f"{worker.name} has no changes{'' if worker.is_over else ' so far'}")
    elif sys.stdout.isatty():
        click.echo(escape_for_terminal(text))
    else:
        click.echo(os.fsencode(text))  # not escaped, so that git apply accepts it


async def diff_worker(context: RepoContext, worker: WorkerState, is_stat: bool, in_checkout: bool) -> str:
    """Return the diff between the worker's base and its branch or, with `in_checkout`, its checkout."""
    location: GitLocation = context.repository
    if not in_checkout:
        now = await branch_tip(location, worker.worker_task.branch)
    else:
        location = await context.worktrees.find_checkout(worker.worker_task.branch)
        now = await take_snapshot(location)
    how = "--stat" if is_stat else "--patch"
    return await read_git_output(location, "diff", how, worker.base, now, "--", timeout=DIFF_TIMEOUT_SECONDS)
