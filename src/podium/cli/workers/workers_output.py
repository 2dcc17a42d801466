"""`podium workers diff`, `output` and `logs`: show a worker's changes, its answer or its timeline."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio
import click

from ...workers.merging.pushed_work import find_other_machine
from ...workers.queries.worker_diff import diff_worker, require_own_branch
from ...workers.queries.worker_lookup import RepoContext
from ..commands import logs
from ..output import exit_codes
from ..output.agent_text import format_agent_text
from ..output.text import (
    escape_for_terminal,
    print_to_stderr,
)


@click.command("diff")
@click.argument("branch")
@click.option("--stat", "is_stat", is_flag=True, help="Show only the files and how many lines changed in each.")
@click.pass_obj
def workers_diff_command(context: RepoContext, branch: str, is_stat: bool) -> None:
    """Print what the worker on BRANCH changed since its base: in its checkout or, once it has ended, on its branch.

    Changes in additional repositories follow, each preceded by a line that names the repository.
    """
    worker = context.load_worker(branch)
    require_own_branch(worker)
    is_gone = not Path(worker.worker_task.path).is_dir()
    text = ""
    for there, work in context.open_repositories(worker):
        in_checkout = not worker.is_over and Path(work.path).is_dir()
        if diff := anyio.run(diff_worker, there, worker, work, is_stat, in_checkout):
            gap = "\n" if text and not text.endswith("\n") else ""
            text += diff if there is context else f"{gap}in {work.root}:\n{diff}"
    if not worker.is_over and (elsewhere := anyio.run(find_other_machine, context, worker)) is not None:
        print_to_stderr(f"{worker.name} works on {elsewhere.host}; showing the files that it pushed last")
    elif is_gone and not worker.is_over:
        print_to_stderr(f"{worker.name}: {worker.worker_task.path} no longer exists; showing its branch instead")
    if not text:
        print_to_stderr(f"{worker.name} has no changes{'' if worker.is_over else ' so far'}")
    elif sys.stdout.isatty():
        click.echo(escape_for_terminal(text))
    else:
        click.echo(os.fsencode(text))  # not escaped, so that git apply accepts it


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
