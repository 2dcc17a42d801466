"""`podium merge`: merge workers' branches, check each step, and move the target to the result."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import click

from ...core.gate import InvalidCall
from ...runs.branch_forecast import forecast_branches, read_current_branch
from ...runs.merge_candidates import MergeCandidate, find_merge_candidates
from ...runs.worker_lookup import RepoContext
from ...setup.sandbox_choice import choose_sandbox
from ...setup.settings import Settings
from ...tools.run_checks import CHECK_OUTPUT_TAIL, CHECK_TIMEOUT
from ...tools.shell import SHELL, CommandOutput, run_command_line
from ...values.event import SCHEMA
from ...values.worker_task import DEFAULT_WORKER_AGENT
from ...workspace.git.revision import SHORT, branch_tip
from ...workspace.merging.integration_branch import name_integration_branch
from ...workspace.merging.merge_train import CheckResult, TrainBranch, build_train
from ...workspace.merging.overlap_forecast import read_commit_changes
from ..terminal import exit_codes
from ..terminal.command_options import json_option, repo_option
from ..terminal.text import as_json, escape_for_terminal, print_to_stderr
from ..workers.conflict_resolvers import load_resolver_team, print_resolvers, send_resolvers
from ..workers.forecast import format_forecast
from ..workers.merge_conclusion import MoveOptions, conclude_merge, print_remaining_branches, tidy_branches
from ..workers.merge_report import TrainOutcome, format_changes, format_train_report

Checks = Mapping[str, Sequence[str]]


@click.command("merge")
@click.argument("branches", metavar="[BRANCH]...", nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="Merge every unmerged branch whose worker succeeded.")
@click.option("--onto", default="", metavar="TARGET", help="Branch to merge onto; default: the checked-out one.")
@click.option("--check", "commands", multiple=True, metavar="COMMAND", help="Command that must pass at each step.")
@click.option("--resolve", "is_resolving", is_flag=True, help="Start a worker for each branch that conflicts or fails.")
@click.option("--resolver", metavar="AGENT", help=f"Agent for --resolve; default: {DEFAULT_WORKER_AGENT}.")
@click.option("--yes", "is_agreed", is_flag=True, help="Move the target without asking.")
@click.option("--tree", metavar="TREE", help="Move the target only to this tree, which an earlier merge reported.")
@repo_option
@json_option
@click.pass_context
def merge_command(
    ctx: click.Context,
    branches: tuple[str, ...],
    is_all: bool,
    onto: str,
    commands: tuple[str, ...],
    is_resolving: bool,
    resolver: str | None,
    is_agreed: bool,
    tree: str | None,
    repo: Path | None,
    is_json: bool,
) -> int:
    """Merge workers' branches one after another, and run the checks at each step.

    The merge uses a new branch, podium/merge-…, and temporary folders. A branch that conflicts or fails a check
    is left out. The changes to the target are listed. When you confirm, or with --yes, the target moves to exactly
    the merged tree. With --tree, it moves only if the result has the tree that you reviewed.
    With --resolve, a worker is started for each branch that conflicts or fails a check. It works on a new
    branch, which is merged instead of the old one.
    """
    if bool(branches) == is_all:
        raise click.UsageError(
            "give the branches to merge, or use --all" if not is_all else "give branches or --all, not both"
        )
    if resolver is not None and not is_resolving:
        raise click.UsageError("--resolver needs --resolve; give both")
    if not all(text.strip() for text in commands):
        raise click.UsageError("--check is empty; give a command that must pass, e.g. 'make test'")
    if tree is not None and len(tree) < SHORT:
        raise click.UsageError(f"--tree {tree!r} is too short; give at least {SHORT} digits")
    there = RepoContext(repo) if repo is not None else ctx.find_object(RepoContext) or RepoContext()
    checks = {**there.settings.checks, **{text: (SHELL, "-c", text) for text in commands}}
    target = onto or anyio.run(read_current_branch, there.repository)
    team = load_resolver_team(there, resolver or DEFAULT_WORKER_AGENT) if is_resolving else ()
    options = MoveOptions(commands=commands, tree=tree, is_agreed=is_agreed, is_json=is_json)
    candidates = anyio.run(partial(find_merge_candidates, there, branches, target, notice=print_to_stderr))
    for candidate in candidates:
        if candidate.notice:
            print_to_stderr(candidate.notice)
    if not candidates:
        return _report_nothing_to_merge(there, target, options)
    if not checks:
        print_to_stderr("no checks are configured, so the branches are only merged; add one with --check COMMAND")
    outcome = anyio.run(_build_train, there, candidates, target, checks, is_json)
    if not is_json:
        most = shutil.get_terminal_size().columns
        for line in (*format_train_report(outcome.train), *format_changes(outcome, most=most)):
            click.echo(escape_for_terminal(line))
    if team:
        outcome = replace(outcome, resolving=tuple(anyio.run(send_resolvers, there, outcome.train, team)))
        print_resolvers(outcome.resolving, is_json=is_json)
    return conclude_merge(there, outcome, options)


def _report_nothing_to_merge(there: RepoContext, target: str, options: MoveOptions) -> int:
    print_to_stderr(f"nothing to merge: no worker has changes that {target} does not have")
    left = anyio.run(tidy_branches, there.repository, anyio.run(branch_tip, there.repository, target))
    print_remaining_branches(left, there.repository)
    if options.is_json:
        nothing: dict[str, Any] = {"coupled": [], "left_out": [], "resolving": [], "moved": False}
        click.echo(as_json({"schema": SCHEMA, "target": target, **nothing, "integration_branches": left}))
    return exit_codes.GOAL_MET


# The merge train


async def _build_train(
    there: RepoContext, candidates: Sequence[MergeCandidate], target: str, checks: Checks, is_json: bool
) -> TrainOutcome:
    """Print the forecast, and merge the branches one after another into an integration branch."""
    place = there.repository
    train_branches = [
        TrainBranch(branch=one.branch, commit=await branch_tip(place, one.branch), after=one.after)
        for one in candidates
    ]
    expected = await forecast_branches(place.main_folder, {one.branch: one.base for one in candidates}, onto=target)
    assert expected is not None, "the branches were found above"
    for line in format_forecast(expected) if not is_json else ():
        click.echo(escape_for_terminal(f"forecast: {line}"))
    name = name_integration_branch(datetime.now())
    check = _CheckRunner(there.settings, checks)
    train = await build_train(place, train_branches, onto=target, integration=name, check=check)
    return TrainOutcome(
        forecast=expected, train=train, changes=await read_commit_changes(place, train.base, train.commit)
    )


class _CheckRunner:
    """Runs the checks on a step of the merge train. Checks execute workers' code, so they run in the sandbox."""

    def __init__(self, settings: Settings, checks: Checks) -> None:
        self._settings = settings
        self._checks = checks
        self._last_notice = ""

    async def __call__(self, path: Path) -> CheckResult:
        if not self._checks:
            return CheckResult(passed=True)
        settings = self._settings
        sandbox = await choose_sandbox(path, settings.home, settings.store, is_wanted=settings.sandbox)
        if sandbox.notice and sandbox.notice != self._last_notice:
            print_to_stderr(sandbox.notice)
            self._last_notice = sandbox.notice
        try:
            for name, argv in self._checks.items():
                print_to_stderr(f"checking: {name}")
                output = CommandOutput(start=0, end=CHECK_OUTPUT_TAIL)
                try:
                    ended = await run_command_line(list(argv), path, CHECK_TIMEOUT, output, sandbox.wrap)
                except InvalidCall as error:
                    return CheckResult(passed=False, command=name, output=str(error))
                if ended.code != 0 or ended.has_timed_out:
                    how = f"stopped after {CHECK_TIMEOUT:g} s" if ended.has_timed_out else str(ended)
                    return CheckResult(passed=False, command=f"{name} [{how}]", output=str(output))
        finally:
            sandbox.clean_up()
        return CheckResult(passed=True, checks=tuple(self._checks))
