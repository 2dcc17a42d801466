"""`podium merge`: bring the branches of workers together, checked, and offer the target what came out."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import click

from ...core.gate import Unfit
from ...setup.sandbox_choice import sandboxed
from ...setup.settings import Settings
from ...tools.run_checks import LONGEST, TAIL
from ...tools.shell import SHELL, Output, ran
from ...values.errors import PodiumError
from ...values.event import SCHEMA
from ...workspace.git.repository import Repository, git
from ...workspace.git.revision import HEADS, SHORT, tip
from ...workspace.merging.fast_forward import fast_forward
from ...workspace.merging.merge_train import Car, CheckResult, LeftOut, Train, train
from ...workspace.merging.overlap_forecast import Forecast
from ..terminal import exit_codes
from ..terminal.attendance import is_attended
from ..terminal.say import say
from ..terminal.text import as_json, visible
from ..workers import forecast as forecasts
from ..workers.merge_candidates import Wagon, wagons
from ..workers.resolver import resolving_team, sent, tell
from ..workers.worker_lookup import There, as_object, in_repo
from .delegate import AGENT

if TYPE_CHECKING:
    from ...workers.conflict_resolution import Resolving

INTEGRATION = "podium/merge-{at:%Y%m%d-%H%M%S}"

Checks = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """What was foreseen, and what came of it."""

    forecast: Forecast
    train: Train
    resolving: tuple[Resolving, ...] = ()


@click.command("merge")
@click.argument("branches", metavar="[BRANCH]...", nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="Every branch whose worker succeeded and that is not merged yet.")
@click.option("--onto", default="", metavar="TARGET", help="The branch to merge onto; by default what is checked out.")
@click.option("--check", "commands", multiple=True, metavar="COMMAND", help="A command that has to pass each time.")
@click.option("--resolve", "is_resolving", is_flag=True, help="Send a worker to each branch that clashes or fails.")
@click.option("--resolver", metavar="AGENT", help=f"The agent that resolves; by default {AGENT}.")
@click.option("--yes", "is_agreed", is_flag=True, help="Move the target without asking.")
@click.option("--tree", metavar="TREE", help="Move it to this tree only, as an earlier merge has told it.")
@in_repo
@as_object
@click.pass_context
def command(
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
    """Merge the branches of workers, one after the other, and run the checks on each step.

    All of it happens on a new branch, podium/merge-…, and in temporary folders; a branch that clashes or fails
    a check is left out. The target moves to exactly what was checked, after your yes or with --yes; with --tree
    only where that has the tree that you have looked at.
    With --resolve, a worker is sent to each that clashes or fails a check, on a branch that is merged in its place.
    """
    if bool(branches) == is_all:
        raise click.UsageError("name the branches to merge, or say --all" if not is_all else "name branches, or --all")
    if resolver is not None and not is_resolving:
        raise click.UsageError("--resolver says who it is that --resolve sends; give both")
    if not all(text.strip() for text in commands):
        raise click.UsageError("an empty --check checks nothing; give a command that has to pass, such as 'make test'")
    if tree is not None and len(tree) < SHORT:
        raise click.UsageError(f"--tree {tree!r} is too short to mean one tree; its first {SHORT} digits would do")
    there = There(repo) if repo is not None else ctx.find_object(There) or There()
    checks = {**there.settings.checks, **{text: (SHELL, "-c", text) for text in commands}}
    target = onto or anyio.run(forecasts.current_branch, there.repository)
    team = resolving_team(there, resolver or AGENT) if is_resolving else ()
    going = anyio.run(wagons, there, branches, target)
    for wagon in going:
        if wagon.notice:
            say(wagon.notice)
    if not going:
        say(f"no worker has brought anything that {target} does not have")
        if is_json:
            nothing: dict[str, Any] = {"coupled": [], "left_out": [], "resolving": [], "moved": False}
            click.echo(as_json({"schema": SCHEMA, "target": target, **nothing}))
        return exit_codes.GOAL_MET
    if not checks:
        say("no checks are set up, so that only merging is tried; --check COMMAND runs one")
    built = anyio.run(_built, there, going, target, checks, is_json)
    if not is_json:
        for line in report(built.train):
            click.echo(visible(line))
    if team:
        built = replace(built, resolving=tuple(anyio.run(sent, there, built.train, team)))
        tell(built.resolving, is_json=is_json)
    return _concluded(there, built, commands, is_agreed=is_agreed, tree=tree, is_json=is_json)


# The train


async def _built(there: There, going: Sequence[Wagon], target: str, checks: Checks, is_json: bool) -> Built:
    """Foresee, say so, and merge on a branch of its own."""
    place = there.repository
    cars = [Car(branch=one.branch, commit=await tip(place, one.branch), after=one.after) for one in going]
    expected = await forecasts.foreseen(place.main, {one.branch: one.base for one in going}, onto=target)
    assert expected is not None, "every branch was found just now"
    for line in forecasts.lines(expected) if not is_json else ():
        click.echo(visible(f"forecast: {line}"))
    name = INTEGRATION.format(at=datetime.now())
    check = _Checking(there.settings, checks)
    return Built(forecast=expected, train=await train(place, cars, onto=target, integration=name, check=check))


class _Checking:
    """Runs the checks on a step of the train, in the sandbox: workers wrote what they run."""

    def __init__(self, settings: Settings, checks: Checks) -> None:
        self._settings = settings
        self._checks = checks
        self._noticed = ""

    async def __call__(self, path: Path) -> CheckResult:
        if not self._checks:
            return CheckResult(passed=True)
        settings = self._settings
        bounds = await sandboxed(path, settings.home, settings.store, is_wanted=settings.sandbox)
        if bounds.notice and bounds.notice != self._noticed:
            say(bounds.notice)
            self._noticed = bounds.notice
        try:
            for name, argv in self._checks.items():
                say(f"checking: {name}")
                output = Output(start=0, end=TAIL)
                try:
                    ended = await ran(list(argv), path, LONGEST, output, bounds.wrap)
                except Unfit as error:
                    return CheckResult(passed=False, command=name, output=str(error))
                if ended.code != 0 or ended.is_late:
                    how = f"stopped after {LONGEST:g} s" if ended.is_late else str(ended)
                    return CheckResult(passed=False, command=f"{name} [{how}]", output=str(output))
        finally:
            bounds.put_away()
        return CheckResult(passed=True)


# What becomes of it


def _concluded(
    there: There, built: Built, commands: Sequence[str], *, is_agreed: bool, tree: str | None, is_json: bool
) -> int:
    """Move the target where somebody agrees; the exit code."""
    result = built.train
    if result.ref is None:
        return _told(built, is_json, code=_code(result.left_out), is_moved=False)
    if result.commit == result.base:
        anyio.run(_forget, there.repository, result)
        say(f"{result.target} has all of it already")
        return _told(built, is_json, code=_code(result.left_out), is_moved=False)
    branch = result.ref.removeprefix(HEADS)
    if tree is not None and not result.tree.startswith(tree):
        say(f"{result.target} stays where it is: what came out has the tree {result.tree[:SHORT]}, not {tree[:SHORT]}")
        say(f"a branch or {result.target} has changed since that was told; look at {branch}, and agree to that")
        return _told(built, is_json, code=exit_codes.CONFLICT, is_moved=False)
    if not is_agreed:
        if is_json or not is_attended():
            say(f"{result.target} stays where it is, and {branch} has what was merged; this moves it:")
            say(f"  {_agreeing(result, commands)}")
            return _told(built, is_json, code=exit_codes.ASKS, is_moved=False)
        question = f"Move {result.target} from {result.base[:SHORT]} to the tree {result.tree[:SHORT]}, as checked?"
        if not click.confirm(visible(question), default=None, err=True):
            say(f"{result.target} stays where it is, and {branch} has what was merged")
            return exit_codes.DENIED
    try:
        anyio.run(_moved, there.repository, result)
    except PodiumError as error:
        say(f"{branch} has what was merged")
        _told(built, is_json, code=0, is_moved=False, error=str(error))
        raise
    say(f"{result.target} is at {result.commit[:SHORT]} now, with the tree {result.tree[:SHORT]} that was checked")
    return _told(built, is_json, code=_code(result.left_out), is_moved=True)


def _agreeing(result: Train, commands: Sequence[str]) -> str:
    """The command that merges the same and moves the target, to what was checked now and nothing else."""
    checks = [word for text in commands for word in ("--check", text)]
    branches = [one.branch for one in result.coupled]
    return shlex.join(["podium", "merge", *branches, "--onto", result.target, *checks, "--tree", result.tree, "--yes"])


async def _moved(repository: Repository, result: Train) -> None:
    await fast_forward(
        repository,
        result.target,
        commit=result.commit,
        expected_tree=result.tree,
        expected_old=result.base,
    )
    await _forget(repository, result)


async def _forget(repository: Repository, result: Train) -> None:
    """Take the integration branch away: the target has all of it."""
    assert result.ref is not None
    await git(repository, "update-ref", "-d", result.ref, result.commit)


def _code(left_out: Sequence[LeftOut]) -> int:
    if any(one.reason in ("conflict", "unresolved") for one in left_out):
        return exit_codes.CONFLICT
    return exit_codes.GOAL_NOT_MET if left_out else exit_codes.GOAL_MET


def report(result: Train) -> list[str]:
    """What is in and what is not, and why, line by line."""
    told = [f"in: {one.branch} at {one.commit[:SHORT]}" for one in result.coupled]
    for one in result.left_out:
        files = f" ({', '.join(one.files)})" if one.files else ""
        told.append(f"left out: {one.branch}: {one.reason}: {one.why}{files}")
        told += [f"    {line}" for line in one.output.splitlines()]
    return told


def _told(built: Built, is_json: bool, *, code: int, is_moved: bool, error: str = "") -> int:
    if is_json:
        click.echo(as_json({**fields(built), "moved": is_moved, "error": error or None}))
    return code


def fields(built: Built) -> dict[str, Any]:
    """What was foreseen and what came of it, for programs."""
    result = built.train
    return {
        "schema": SCHEMA,
        "target": result.target,
        "base": result.base,
        "commit": result.commit,
        "tree": result.tree,
        "branch": None if result.ref is None else result.ref.removeprefix(HEADS),
        "forecast": forecasts.fields(built.forecast),
        "coupled": [{"branch": one.branch, "commit": one.commit, "tree": one.tree} for one in result.coupled],
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
        "resolving": [{"branch": one.branch, "on": one.on, "id": one.run} for one in built.resolving],
    }
