"""Merge branches in several repositories for `podium merge`, and move all targets together if the user agrees."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Sequence
from functools import partial
from typing import Any

import anyio
import click

from ...runs.merge_candidates import MergeCandidate
from ...runs.worker_lookup import RepoContext
from ...tools.shell import SHELL
from ...values.errors import PodiumError
from ...values.plain_text import format_count
from ...workers.joint_merge import (
    JointOutcome,
    RepositoryMerge,
    discard_results,
    find_repository_merges,
    run_joint_merge,
)
from ...workers.merge_run import CheckRunner, TrainOutcome, merge_fields
from ...workspace.git.revision import HEADS, SHORT
from ...workspace.merging.integration_branch import remove_integration_branch
from ...workspace.merging.joint_move import move_together
from ...workspace.merging.overlap_forecast import Forecast
from ..terminal import exit_codes
from ..terminal.terminal_input import is_attended
from ..terminal.text import as_json, escape_for_terminal, print_to_stderr
from .forecast import format_forecast
from .merge_conclusion import MoveOptions, get_left_out_code, print_remaining_branches, tidy_branches
from .merge_report import format_changes, format_checked_tree, format_train_report


def merge_together(
    there: RepoContext, candidates: Sequence[MergeCandidate], target: str, onto: str, options: MoveOptions
) -> int:
    """Merge the candidates in all their repositories, move all targets if the user agrees, and return the exit code."""
    make_check = partial(_make_check, options.commands)
    merges = anyio.run(find_repository_merges, there, candidates, target, onto, make_check)
    show = None if options.is_json else _print_forecast
    outcome = anyio.run(partial(run_joint_merge, merges, on_forecast=show))
    if not options.is_json:
        _print_report(outcome)
    refusal: int | None = None
    error: PodiumError | None = None
    if outcome.moves:
        refusal = _find_refusal(outcome, onto, options)
        error = _try_to_move(there, outcome) if refusal is None else None
    elif any(one.train.ref is not None for _, one in outcome.parts):
        print_to_stderr("all targets already contain the result")
    is_moved = bool(outcome.moves) and refusal is None and error is None
    left = _tidy_repositories(
        outcome, is_refused=refusal == exit_codes.DENIED, is_settled=refusal is None and not error
    )
    if options.is_json:
        click.echo(as_json(_joint_fields(outcome, left, is_moved=is_moved, error=error)))
    if error is not None:
        raise error
    left_out = [one for _, part in outcome.parts for one in part.train.left_out]
    return get_left_out_code(left_out) if refusal is None else refusal


def _make_check(commands: Sequence[str], context: RepoContext) -> CheckRunner:
    """Return a runner for the repository's own checks and the commands given on the command line."""
    checks = {**context.settings.checks, **{text: (SHELL, "-c", text) for text in commands}}
    if not checks:
        print_to_stderr(f"no checks are configured in {context.root}, so its branches are merged without checks")
    return CheckRunner(context.settings, checks, print_to_stderr)


def _print_forecast(merge: RepositoryMerge, forecast: Forecast) -> None:
    for line in format_forecast(forecast):
        click.echo(escape_for_terminal(f"forecast: in {merge.context.root}: {line}"))


def _print_report(outcome: JointOutcome) -> None:
    most = shutil.get_terminal_size().columns
    for part, one in outcome.parts:
        lines = [f"in {part.context.root}:", *format_train_report(one.train), *format_changes(one, most=most)]
        for line in lines:
            click.echo(escape_for_terminal(line))


def _find_refusal(outcome: JointOutcome, onto: str, options: MoveOptions) -> int | None:
    """Return None if the targets may be moved. Otherwise, print the reason and return the exit code."""
    if options.tree is not None and not outcome.tree.startswith(options.tree):
        print_to_stderr(
            f"no target was moved: the merge results in the tree {outcome.tree[:SHORT]}, not in the given tree "
            f"{options.tree[:SHORT]}; a branch or a target has changed since the given tree was reported"
        )
        return exit_codes.CONFLICT
    if options.is_agreed:
        return None
    if options.is_json or not is_attended():
        branches = ", ".join(
            f"{one.train.ref.removeprefix(HEADS)} in {part.context.root}"
            for part, one in outcome.parts
            if one.train.ref is not None
        )
        print_to_stderr(f"no target was moved; the merged result is on {branches}; to move all targets, run:")
        print_to_stderr(f"  {_format_agree_command(outcome, onto, options)}")
        return exit_codes.ASKS
    return None if _ask_person(outcome) else exit_codes.DENIED


def _format_agree_command(outcome: JointOutcome, onto: str, options: MoveOptions) -> str:
    primary = outcome.parts[0][1].train
    target = ["--onto", onto] if onto else []
    checks = [word for text in options.commands for word in ("--check", text)]
    branches = [one.branch for one in primary.merged]
    return shlex.join(["podium", "merge", *branches, *target, *checks, "--tree", outcome.tree, "--yes"])


def _ask_person(outcome: JointOutcome) -> bool:
    """Ask whether to move all targets. If the user refuses or interrupts the command, discard the results."""
    moved = {move.root for move in outcome.moves}
    for part, one in outcome.parts:
        if part.context.root in moved:
            train = one.train
            where = f"{train.target} in {part.context.root}"
            print_to_stderr(f"{where}: from {train.base[:SHORT]} to {format_checked_tree(train)}")
    try:
        is_agreed = click.confirm(f"Move {format_count(len(moved), 'target')}?", default=None, err=True)
    except click.Abort:
        click.echo(err=True)  # print a newline after the question
        anyio.run(discard_results, outcome)
        raise
    if not is_agreed:
        print_to_stderr("no target was moved")
    return is_agreed


def _try_to_move(there: RepoContext, outcome: JointOutcome) -> PodiumError | None:
    """Move all targets. Return None, or the error if the move failed."""
    try:
        anyio.run(move_together, there.settings.home, there.store, outcome.moves)
    except PodiumError as error:
        return error
    for move in outcome.moves:
        print_to_stderr(f"{move} is now at {move.new[:SHORT]}")
    return None


def _tidy_repositories(outcome: JointOutcome, *, is_refused: bool, is_settled: bool) -> list[list[str]]:
    """Remove integration branches that are no longer needed. Return those that are left in each repository."""
    left: list[list[str]] = []
    for part, one in outcome.parts:
        repository, train = part.context.repository, one.train
        if train.ref is not None and (is_settled or is_refused):
            anyio.run(remove_integration_branch, repository, train.ref, train.commit)
        within = train.commit if is_settled else train.base
        left.append(anyio.run(tidy_branches, repository, within, train.ref))
        print_remaining_branches(left[-1], repository)
    return left


def _joint_fields(
    outcome: JointOutcome, left: Sequence[list[str]], *, is_moved: bool, error: PodiumError | None
) -> dict[str, Any]:
    """Return the fields of the primary repository, with the fields of the other repositories in the list `also`."""

    def part_fields(part: RepositoryMerge, one: TrainOutcome, branches: list[str]) -> dict[str, Any]:
        return {**merge_fields(one), "repo": part.context.root, "integration_branches": branches}

    first, *others = [
        part_fields(part, one, branches) for (part, one), branches in zip(outcome.parts, left, strict=True)
    ]
    ending = {"joint_tree": outcome.tree, "moved": is_moved, "error": None if error is None else str(error)}
    return {**first, **ending, "also": others}
