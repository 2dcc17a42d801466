"""`podium merge`: merge workers' branches, check each step, and move the target to the result."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import click
from msgspec import structs

from ...files.discovery import load_roster
from ...system.identity import get_local_actor
from ...values.agent import Agent
from ...values.errors import PodiumError
from ...values.event import SCHEMA
from ...values.plain_text import join_words
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
from ...workers.merging.merge_candidates import Resolver, find_resolvers
from ...workers.merging.merge_run import MergeReport, TrainOutcome
from ...workers.merging.pull_requests import RequestPlace, find_request_place, open_pull_requests
from ...workers.queries.worker_lookup import RepoContext
from ...workspace.git.revision import SHORT, branch_tips
from ...workspace.merging.merge_train import LeftOutBranch, Train
from ...workspace.merging.overlap_forecast import Forecast
from ...workspace.merging.resolution_commit import find_unresolved_files
from ...workspace.travel.forge import OpenedRequest
from ..output import exit_codes
from ..output.command_options import get_command_actor, json_option, repo_option
from ..output.merge_conclusion import conclude_merge, get_left_out_code, print_remaining_branches
from ..output.merge_report import format_changes, format_forecast, format_train_report
from ..output.move_text import MoveOptions
from ..output.terminal_input import is_attended
from ..output.text import as_json, escape_for_terminal, print_to_stderr

if TYPE_CHECKING:
    from ...workers.merging.conflict_resolution import ResolverRun


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
    team = _load_resolver_team(there, resolver or DEFAULT_WORKER_AGENT) if is_resolving else ()
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
        checked = anyio.run(partial(_resolve_left_out, there, checked, team))
        _print_resolvers(checked.parts[0][1].resolving, is_json=is_json)
    if place is not None:
        return _conclude_with_requests(there, checked, place, options)
    return conclude_merge(checked, options)


workers_merge_command = merge_command
"""The command is also a subcommand of `podium workers`."""


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


def _conclude_with_requests(
    there: RepoContext, checked: CheckedMerge, place: RequestPlace, options: MoveOptions
) -> int:
    """Push the merged branches and open pull requests for them if the user agrees, and return the exit code.

    The target is not moved, and there is no integration branch, so that none is left if this process is killed.
    """
    [(_, outcome)] = checked.parts
    branches = [one.branch for one in outcome.train.merged]
    refusal = _find_refusal(branches, place, options) if branches else None
    opened: list[OpenedRequest] = []
    error: PodiumError | None = None
    if refusal is None:
        error = anyio.run(_open_requests, there, outcome, place, opened, options)
    if options.is_json:
        ending = {"moved": False, "error": None if error is None else str(error), "pull_requests": opened}
        click.echo(as_json({**structs.asdict(MergeReport.of(outcome)), **ending, "branch": None}))
    if error is not None:
        raise error
    return get_left_out_code(checked) if refusal is None else refusal


async def _open_requests(
    there: RepoContext,
    outcome: TrainOutcome,
    place: RequestPlace,
    opened: list[OpenedRequest],
    options: MoveOptions,
) -> PodiumError | None:
    """Open the pull requests, and add each to `opened` as soon as it exists. If opening one fails, return the error."""
    by = get_local_actor("command" if options.is_agreed else "terminal")
    try:
        async for one in open_pull_requests(there, place, outcome.train, by=by):
            opened.append(one)
            if not options.is_json:
                what = "opened" if one.is_new else "already open, updated"
                click.echo(escape_for_terminal(f"{one.branch}: {one.url} ({what})"))
    except PodiumError as error:
        return error
    return None


def _find_refusal(branches: Sequence[str], place: RequestPlace, options: MoveOptions) -> int | None:
    """Return None if the branches may be pushed. Otherwise, print the reason and return the exit code."""
    if options.is_agreed:
        return None
    where = f"{place.remote.name} ({place.remote.url.text})"
    if options.is_json or not is_attended():
        print_to_stderr(f"{join_words(branches)} would be pushed to {where}; to do that, add --yes")
        return exit_codes.ASKS
    question = f"Push {join_words(branches)} to {where} and open pull requests?"
    if click.confirm(escape_for_terminal(question), default=None, err=True):
        return None
    print_to_stderr("nothing was pushed")
    return exit_codes.DENIED


def _load_resolver_team(context: RepoContext, name: str) -> tuple[Agent, ...]:
    """Return the agent called `name`, which resolves conflicts, followed by the agents that it needs.

    Raise Mistake if there is no agent with that name.
    """
    return tuple(load_roster(context.folder, context.settings.home).resolve_team(name))


async def _resolve_left_out(context: RepoContext, checked: CheckedMerge, team: tuple[Agent, ...]) -> CheckedMerge:
    """Start a resolver for each branch that the merge left out, and return the merge with these resolvers."""
    [(merge, outcome)] = checked.parts
    resolving = tuple(await _send_resolvers(context, outcome.train, team))
    return replace(checked, parts=((merge, replace(outcome, resolving=resolving)),))


async def _send_resolvers(context: RepoContext, result: Train, team: tuple[Agent, ...]) -> list[ResolverRun]:
    """Start a resolver for each branch that conflicts or fails a check.

    Skip branches that are already resolved, or that a resolver is already working on.
    """
    unresolved_branches = [one for one in result.left_out if one.reason in ("conflict", "check")]
    if not unresolved_branches:
        return []
    from ...app import App  # imported here to keep start-up fast: most merges do not need it
    from ...workers.merging.conflict_resolution import delegate_resolution

    resolvers_by_branch = await find_resolvers(context)
    resolver_runs: list[ResolverRun] = []
    async with App(context.settings) as app:
        for one in unresolved_branches:
            if reason := await _reason_to_skip(context, one, resolvers_by_branch):
                print_to_stderr(reason)
                continue
            try:
                resolver_runs.append(
                    await delegate_resolution(
                        app.runs,
                        context.settings,
                        team,
                        one,
                        result,
                        at=context.folder,
                        by=get_command_actor(),
                    )
                )
            except PodiumError as error:
                print_to_stderr(f"{one.branch}: no resolver was started: {error}")
    return resolver_runs


async def _reason_to_skip(
    context: RepoContext, left_out: LeftOutBranch, resolvers_by_branch: Mapping[str, Resolver]
) -> str:
    """Return why a branch needs no new resolver, or an empty string if it needs a resolver."""
    for branch, resolver in reversed(list(resolvers_by_branch.items())):
        if resolver.resolves.theirs != left_out.commit:
            continue
        if not resolver.worker.is_over:
            return f"{left_out.branch}: a resolver is already working on this branch; see {branch} in podium workers"
        at = (await branch_tips(context.repository, [branch])).get(branch)
        if resolver.worker.state != "complete" or at is None:
            continue
        if not await find_unresolved_files(context.repository, at, resolver.resolves):
            return f"{left_out.branch}: already resolved on {branch}; merge it with: podium merge {branch}"
    return ""


def _print_resolvers(resolver_runs: Iterable[ResolverRun], *, is_json: bool) -> None:
    """Print which workers were started, and the commands to use when they are done."""
    for one in resolver_runs:
        if not is_json:
            click.echo(escape_for_terminal(f"resolving: {one.branch}: worker {one.run} on {one.on}"))
        print_to_stderr(
            f"{one.on}: a worker is resolving the conflicts; run podium workers to see its state, and podium approvals "
            "to see its requests"
        )
        print_to_stderr(
            f"  when the worker has finished, merge {one.on} instead of {one.branch}: podium merge {one.on}"
        )
