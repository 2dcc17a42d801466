"""`podium merge`: merge workers' branches, check each step, and move the target to the result."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import click

from ...values.event import SCHEMA
from ...values.worker_task import DEFAULT_WORKER_AGENT
from ...workers.merging.merge import (
    CheckedMerge,
    MergePlan,
    MergeRequest,
    RepositoryMerge,
    build_merge,
    finish_interrupted_moves,
    plan_merge,
    select_checks,
    tidy_target,
)
from ...workers.merging.pull_requests import find_request_place
from ...workers.queries.worker_lookup import RepoContext
from ...workspace.git.revision import SHORT
from ...workspace.merging.overlap_forecast import Forecast
from ..terminal import exit_codes
from ..terminal.command_options import json_option, repo_option
from ..terminal.global_options import get_command_actor
from ..terminal.text import as_json, escape_for_terminal, print_to_stderr
from ..workers.conflict_resolvers import load_resolver_team, print_resolvers, resolve_left_out
from ..workers.forecast import format_forecast
from ..workers.merge_conclusion import conclude_merge, print_remaining_branches
from ..workers.merge_report import format_changes, format_train_report
from ..workers.move_text import MoveOptions
from ..workers.pull_request_conclusion import conclude_with_requests


@click.command("merge")
@click.argument("branches", metavar="[BRANCH]...", nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="Merge all unmerged results of teams and workers that succeeded.")
@click.option("--onto", default="", metavar="TARGET", help="Branch to merge into; default: the checked-out branch.")
@click.option(
    "--check", "commands", multiple=True, metavar="COMMAND", help="Command that must succeed after each merge."
)
@click.option("--only", "names", multiple=True, metavar="PATH", help="Merge only the changes in this file or folder.")
@click.option("--resolve", "is_resolving", is_flag=True, help="Start a worker for each branch that conflicts or fails.")
@click.option("--resolver", metavar="AGENT", help=f"Agent for --resolve; default: {DEFAULT_WORKER_AGENT}.")
@click.option(
    "--pull-request",
    "is_request",
    is_flag=True,
    help="Push the branches and open pull requests instead of moving the target.",
)
@click.option("--yes", "is_agreed", is_flag=True, help="Move the target, or open pull requests, without asking.")
@click.option(
    "--tree",
    metavar="TREE",
    help="Move the target only if the merge results in TREE, the tree that an earlier merge reported.",
)
@repo_option
@json_option
@click.pass_context
def merge_command(
    ctx: click.Context,
    branches: tuple[str, ...],
    is_all: bool,
    onto: str,
    commands: tuple[str, ...],
    names: tuple[str, ...],
    is_resolving: bool,
    resolver: str | None,
    is_request: bool,
    is_agreed: bool,
    tree: str | None,
    repo: Path | None,
    is_json: bool,
) -> int:
    """Merge workers' branches one after another, and run the checks at each step.

    The merge uses a new branch, podium/merge-…, and temporary folders. A branch that conflicts or fails a check
    is left out. The changes to the target are listed. When you confirm, or with --yes, the target is fast-forwarded
    to the merge result. With --tree, this happens only if the result has the tree that you reviewed.
    With --resolve, a worker is started on a new branch for each branch that conflicts or fails a check. When the
    worker has finished, merge its branch instead of the original one.
    With --pull-request, each branch that merges and passes is pushed to the remote unchanged, and gets a pull request
    with a description of its run, using gh or glab. If a branch already has an open pull request, no second one is
    opened.
    With --only, which can be repeated, only the changes in the given files and folders are merged. The branch keeps its
    other changes, which can be merged later.
    A branch whose worker worked in several repositories is merged in all of them, or in none.
    """
    _check_usage(branches, is_all, commands, names, resolver if not is_resolving else None, tree)
    if is_request and (names or tree is not None):
        raise click.UsageError(
            "--pull-request pushes whole branches and does not move the target; do not use it with --only or --tree"
        )
    there = RepoContext(repo) if repo is not None else ctx.find_object(RepoContext) or RepoContext()
    anyio.run(partial(finish_interrupted_moves, there.settings, notice=print_to_stderr))
    place = anyio.run(find_request_place, there) if is_request else None
    team = load_resolver_team(there, resolver or DEFAULT_WORKER_AGENT) if is_resolving else ()
    options = MoveOptions(onto=onto, commands=commands, names=names, tree=tree, is_agreed=is_agreed, is_json=is_json)
    request = MergeRequest(
        branches=branches,
        onto=onto,
        only=names,
        single_for="--resolve" if is_resolving else "--pull-request" if is_request else "",
    )
    plan = anyio.run(partial(plan_merge, there, request, notice=print_to_stderr))
    if not plan.merges:
        return _report_nothing_to_merge(plan, options)
    checked = _build(plan, options, needs_branch=place is None)
    if team:
        checked = anyio.run(partial(resolve_left_out, there, checked, team))
        print_resolvers(checked.parts[0][1].resolving, is_json=is_json)
    if place is not None:
        return conclude_with_requests(there, checked, place, options)
    return conclude_merge(checked, options)


def _build(plan: MergePlan, options: MoveOptions, *, needs_branch: bool) -> CheckedMerge:
    """Merge the branches, run the checks, and print the forecast and the result."""
    is_joint = len(plan.merges) > 1
    for merge in plan.merges:
        if not select_checks(merge.context.settings, options.commands):
            print_to_stderr(
                f"no checks are configured in {merge.context.root}, so its branches are merged without checks"
                if is_joint
                else "no checks are configured, so the branches are merged without checks; add one with --check COMMAND"
            )
    build = partial(
        build_merge,
        plan,
        options.commands,
        by=get_command_actor(),
        notice=print_to_stderr,
        on_forecast=None if options.is_json else partial(_print_forecast, is_joint),
        needs_branch=needs_branch,
    )
    checked = anyio.run(build)
    if not options.is_json:
        _print_report(checked, is_joint=is_joint)
    return checked


def _check_usage(
    branches: tuple[str, ...],
    is_all: bool,
    commands: tuple[str, ...],
    names: tuple[str, ...],
    unused_resolver: str | None,
    tree: str | None,
) -> None:
    """Raise UsageError if options conflict. `unused_resolver` is the value of --resolver if --resolve is missing."""
    if bool(branches) == is_all:
        raise click.UsageError(
            "give the branches to merge, or use --all" if not is_all else "give branches or --all, not both"
        )
    if unused_resolver is not None:
        raise click.UsageError("--resolver needs --resolve; give both")
    if not all(text.strip() for text in commands):
        raise click.UsageError("--check is empty; give a command that must pass, e.g. 'make test'")
    if names and len(branches) != 1:
        raise click.UsageError("--only works with exactly one branch; give one branch, and do not use --all")
    if tree is not None and len(tree) < SHORT:
        raise click.UsageError(f"--tree {tree!r} is too short; give at least {SHORT} digits")


def _report_nothing_to_merge(plan: MergePlan, options: MoveOptions) -> int:
    print_to_stderr(f"nothing to merge: no finished branch has changes that {plan.target} lacks")
    left = anyio.run(tidy_target, plan)
    print_remaining_branches(left, plan.context.repository)
    if options.is_json:
        nothing: dict[str, Any] = {"coupled": [], "left_out": [], "resolving": [], "moved": False}
        click.echo(as_json({"schema": SCHEMA, "target": plan.target, **nothing, "integration_branches": left}))
    return exit_codes.GOAL_MET


def _print_forecast(is_joint: bool, merge: RepositoryMerge, forecast: Forecast) -> None:
    where = f"in {merge.context.root}: " if is_joint else ""
    for line in format_forecast(forecast):
        click.echo(escape_for_terminal(f"forecast: {where}{line}"))


def _print_report(checked: CheckedMerge, *, is_joint: bool) -> None:
    most = shutil.get_terminal_size().columns
    for part, one in checked.parts:
        heading = [f"in {part.context.root}:"] if is_joint else []
        for line in (*heading, *format_train_report(one.train), *format_changes(one, most=most)):
            click.echo(escape_for_terminal(line))
