"""`podium workers diff`: what a worker changed."""

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
@click.option("--stat", "is_stat", is_flag=True, help="Only the files, and how many lines changed in each.")
@click.pass_obj
def workers_diff_command(context: RepoContext, branch: str, is_stat: bool) -> None:
    """Print what the worker of BRANCH changed since its base: its branch, or its checkout while it is not over."""
    worker = context.find_worker(branch)
    if worker.errand.is_reader:
        raise Mistake(f"{worker.name} only reads, so there is nothing that it changed; podium workers output shows it")
    if worker.errand.is_here:
        raise Mistake(f"{worker.name} works in the repository itself, on no branch of its own; git diff shows it")
    if not worker.base:
        raise Mistake(f"{worker.name} has no checkout yet ({worker.state}), so there is nothing that it changed")
    is_gone = not Path(worker.errand.path).is_dir()
    text = anyio.run(diff_worker, context, worker, is_stat, not worker.is_over and not is_gone)
    if is_gone and not worker.is_over:
        print_to_stderr(f"{worker.name}: its folder {worker.errand.path} is gone; this is what its branch has")
    if not text:
        print_to_stderr(f"{worker.name} has changed nothing{'' if worker.is_over else ' so far'}")
    elif sys.stdout.isatty():
        click.echo(escape_for_terminal(text))
    else:
        click.echo(os.fsencode(text))  # as it is, so that git apply can take it


async def diff_worker(context: RepoContext, worker: WorkerState, is_stat: bool, in_checkout: bool) -> str:
    """The difference between where the work began and what there is of it, in its checkout or on its branch."""
    location: GitLocation = context.repository
    if not in_checkout:
        now = await branch_tip(location, worker.errand.branch)
    else:
        location = await context.worktrees.find_checkout(worker.errand.branch)
        now = await take_snapshot(location)
    how = "--stat" if is_stat else "--patch"
    return await read_git_output(location, "diff", how, worker.base, now, "--", timeout=DIFF_TIMEOUT_SECONDS)
