"""`podium merge`: merge workers' branches, check each step, and move the target to the result."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import click

from ...core.gate import InvalidCall
from ...runs.branch_forecast import forecast_branches, forecast_fields, read_current_branch
from ...runs.merge_candidates import MergeCandidate, find_merge_candidates
from ...runs.worker_lookup import RepoContext
from ...setup.sandbox_choice import choose_sandbox
from ...setup.settings import Settings
from ...tools.run_checks import CHECK_OUTPUT_TAIL, CHECK_TIMEOUT
from ...tools.shell import SHELL, CommandOutput, run_command_line
from ...values.errors import PodiumError
from ...values.event import SCHEMA
from ...values.worker_task import DEFAULT_WORKER_AGENT
from ...workspace.git.repository import Repository, call_git
from ...workspace.git.revision import HEADS, SHORT, branch_tip
from ...workspace.merging.fast_forward import fast_forward
from ...workspace.merging.merge_train import CheckResult, LeftOutBranch, Train, TrainBranch, build_train
from ...workspace.merging.overlap_forecast import Forecast
from ..terminal import exit_codes
from ..terminal.command_options import json_option, repo_option
from ..terminal.terminal_input import is_attended
from ..terminal.text import as_json, escape_for_terminal, print_to_stderr
from ..workers.conflict_resolvers import load_resolver_team, print_resolvers, send_resolvers
from ..workers.forecast import format_forecast

if TYPE_CHECKING:
    from ...workers.conflict_resolution import ResolverRun

INTEGRATION = "podium/merge-{at:%Y%m%d-%H%M%S}"

Checks = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOutcome:
    """The forecast, the result of the merge train, and the resolvers that were started."""

    forecast: Forecast
    train: Train
    resolving: tuple[ResolverRun, ...] = ()


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
    is left out. When you confirm, or with --yes, the target moves to exactly the tree that was checked. With
    --tree, it moves only if the result has the tree that you reviewed.
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
    candidates = anyio.run(partial(find_merge_candidates, there, branches, target, notice=print_to_stderr))
    for candidate in candidates:
        if candidate.notice:
            print_to_stderr(candidate.notice)
    if not candidates:
        print_to_stderr(f"nothing to merge: no worker has changes that {target} does not have")
        if is_json:
            nothing: dict[str, Any] = {"coupled": [], "left_out": [], "resolving": [], "moved": False}
            click.echo(as_json({"schema": SCHEMA, "target": target, **nothing}))
        return exit_codes.GOAL_MET
    if not checks:
        print_to_stderr("no checks are configured, so the branches are only merged; add one with --check COMMAND")
    outcome = anyio.run(_build_train, there, candidates, target, checks, is_json)
    if not is_json:
        for line in format_train_report(outcome.train):
            click.echo(escape_for_terminal(line))
    if team:
        outcome = replace(outcome, resolving=tuple(anyio.run(send_resolvers, there, outcome.train, team)))
        print_resolvers(outcome.resolving, is_json=is_json)
    return _conclude_merge(there, outcome, commands, is_agreed=is_agreed, tree=tree, is_json=is_json)


# The train


async def _build_train(
    there: RepoContext, candidates: Sequence[MergeCandidate], target: str, checks: Checks, is_json: bool
) -> TrainOutcome:
    """Print the forecast and merge the branches on an integration branch."""
    place = there.repository
    train_branches = [
        TrainBranch(branch=one.branch, commit=await branch_tip(place, one.branch), after=one.after)
        for one in candidates
    ]
    expected = await forecast_branches(place.main_folder, {one.branch: one.base for one in candidates}, onto=target)
    assert expected is not None, "the branches were found above"
    for line in format_forecast(expected) if not is_json else ():
        click.echo(escape_for_terminal(f"forecast: {line}"))
    name = INTEGRATION.format(at=datetime.now())
    check = _CheckRunner(there.settings, checks)
    return TrainOutcome(
        forecast=expected, train=await build_train(place, train_branches, onto=target, integration=name, check=check)
    )


class _CheckRunner:
    """Runs the checks on a step of the train, in the sandbox, because they execute code from workers."""

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
        return CheckResult(passed=True)


# Moving the target


def _conclude_merge(
    there: RepoContext,
    outcome: TrainOutcome,
    commands: Sequence[str],
    *,
    is_agreed: bool,
    tree: str | None,
    is_json: bool,
) -> int:
    """Move the target if the person agrees, and return the exit code."""
    result = outcome.train
    if result.ref is None:
        return _print_json_result(outcome, is_json, code=_exit_code(result.left_out), is_moved=False)
    if result.commit == result.base:
        anyio.run(_delete_integration_branch, there.repository, result)
        print_to_stderr(f"{result.target} already contains the result")
        return _print_json_result(outcome, is_json, code=_exit_code(result.left_out), is_moved=False)
    branch = result.ref.removeprefix(HEADS)
    checked = "checked " if commands or there.settings.checks else ""
    if tree is not None and not result.tree.startswith(tree):
        print_to_stderr(
            f"{result.target} was not moved: the result has the tree {result.tree[:SHORT]}, not {tree[:SHORT]}"
        )
        print_to_stderr(
            f"a branch or {result.target} has changed since that tree was reported; review {branch} and use its tree"
        )
        return _print_json_result(outcome, is_json, code=exit_codes.CONFLICT, is_moved=False)
    if not is_agreed:
        if is_json or not is_attended():
            print_to_stderr(
                f"{result.target} was not moved; {branch} has the merged result; to move {result.target}, run:"
            )
            print_to_stderr(f"  {_format_agree_command(result, commands)}")
            return _print_json_result(outcome, is_json, code=exit_codes.ASKS, is_moved=False)
        question = f"Move {result.target} from {result.base[:SHORT]} to the {checked}tree {result.tree[:SHORT]}?"
        if not click.confirm(escape_for_terminal(question), default=None, err=True):
            print_to_stderr(f"{result.target} was not moved; {branch} has the merged result")
            return exit_codes.DENIED
    try:
        anyio.run(_move_target, there.repository, result)
    except PodiumError as error:
        print_to_stderr(f"{branch} has the merged result")
        _print_json_result(outcome, is_json, code=0, is_moved=False, error=str(error))
        raise
    print_to_stderr(f"{result.target} is now at {result.commit[:SHORT]}, with the {checked}tree {result.tree[:SHORT]}")
    return _print_json_result(outcome, is_json, code=_exit_code(result.left_out), is_moved=True)


def _format_agree_command(result: Train, commands: Sequence[str]) -> str:
    """Return the command that repeats the merge and moves the target, but only to the tree that was checked."""
    checks = [word for text in commands for word in ("--check", text)]
    branches = [one.branch for one in result.merged]
    return shlex.join(["podium", "merge", *branches, "--onto", result.target, *checks, "--tree", result.tree, "--yes"])


async def _move_target(repository: Repository, result: Train) -> None:
    await fast_forward(
        repository,
        result.target,
        commit=result.commit,
        expected_tree=result.tree,
        expected_old=result.base,
    )
    await _delete_integration_branch(repository, result)


async def _delete_integration_branch(repository: Repository, result: Train) -> None:
    """Delete the integration branch, because the target contains its commits."""
    assert result.ref is not None
    await call_git(repository, "update-ref", "-d", result.ref, result.commit)


def _exit_code(left_out: Sequence[LeftOutBranch]) -> int:
    if any(one.reason in ("conflict", "unresolved") for one in left_out):
        return exit_codes.CONFLICT
    return exit_codes.GOAL_NOT_MET if left_out else exit_codes.GOAL_MET


def format_train_report(result: Train) -> list[str]:
    """Return a line for each branch: merged, or left out with the reason."""
    lines = [f"merged: {one.branch} at {one.commit[:SHORT]}" for one in result.merged]
    for one in result.left_out:
        files = f" ({', '.join(one.files)})" if one.files else ""
        lines.append(f"left out: {one.branch}: {one.reason}: {one.why}{files}")
        lines += [f"    {line}" for line in one.output.splitlines()]
    return lines


def _print_json_result(outcome: TrainOutcome, is_json: bool, *, code: int, is_moved: bool, error: str = "") -> int:
    if is_json:
        click.echo(as_json({**merge_fields(outcome), "moved": is_moved, "error": error or None}))
    return code


def merge_fields(outcome: TrainOutcome) -> dict[str, Any]:
    """Return the forecast and the result of the merge as JSON fields."""
    result = outcome.train
    return {
        "schema": SCHEMA,
        "target": result.target,
        "base": result.base,
        "commit": result.commit,
        "tree": result.tree,
        "branch": None if result.ref is None else result.ref.removeprefix(HEADS),
        "forecast": forecast_fields(outcome.forecast),
        "coupled": [{"branch": one.branch, "commit": one.commit, "tree": one.tree} for one in result.merged],
        "left_out": [
            {
                "branch": one.branch,
                "commit": one.commit,
                "reason": one.reason,
                "why": one.why,
                "onto": one.onto,
                "files": list(one.files),
                "output": one.output,
            }
            for one in result.left_out
        ],
        "resolving": [{"branch": one.branch, "on": one.on, "id": one.run} for one in outcome.resolving],
    }
