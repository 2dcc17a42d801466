"""Finish `podium merge`: move the targets if the user agrees, and print the result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import anyio
import click

from ...system.identity import get_local_actor
from ...values.errors import Mistake, PodiumError
from ...workers.merging.merge import (
    AppliedMerge,
    CheckedMerge,
    apply_merge,
    discard_merge,
    format_kept_ref,
    tidy_results,
)
from ...workspace.git.repository import Repository
from ...workspace.merging.merge_train import LeftOutBranch
from . import exit_codes
from .merge_report import format_remaining_branches
from .move_text import (
    MoveOptions,
    build_merge_answer,
    format_how_to_agree,
    format_kept_results,
    format_moved_targets,
    format_outdated_tree,
    format_question,
    format_rejection,
    format_unchanged_targets,
    get_merged_tree,
)
from .terminal_input import is_attended
from .text import as_json, escape_for_terminal, print_to_stderr


def conclude_merge(checked: CheckedMerge, options: MoveOptions) -> int:
    """Move the targets if the user agrees, remove integration branches, and return the exit code.

    If a target does not contain the new integration branch, the branch is kept, unless the user rejected the result.
    """
    applied: AppliedMerge | None = None
    error: PodiumError | None = None
    refusal = _find_refusal(checked, options) if checked.moves else None
    if refusal is None:
        try:
            applied = _apply(checked, options)
        except PodiumError as raised:
            error = raised
            _print_lines(format_kept_results(checked))
    left = _tidy(checked, refusal) if applied is None else applied.left
    for (part, _), branches in zip(checked.parts, left, strict=True):
        print_remaining_branches(branches, part.context.repository)
    if options.is_json:
        is_moved = applied is not None and bool(applied.moves)
        click.echo(as_json(build_merge_answer(checked, left, is_moved=is_moved, error=error)))
    if error is not None:
        raise error
    return get_left_out_code(checked) if refusal is None else refusal


def _apply(checked: CheckedMerge, options: MoveOptions) -> AppliedMerge:
    by = get_local_actor("command" if options.is_agreed else "terminal")
    applied = anyio.run(partial(apply_merge, checked.results, by=by))
    _print_lines(format_moved_targets(checked) if applied.moves else format_unchanged_targets(checked))
    _print_lines(map(format_kept_ref, applied.kept_refs))
    return applied


def _tidy(checked: CheckedMerge, refusal: int | None) -> list[list[str]]:
    """Remove the integration branches that are not needed, and return the remaining ones of each repository."""
    if refusal != exit_codes.DENIED:
        return anyio.run(tidy_results, checked.results)
    left = anyio.run(discard_merge, checked.results)
    print_to_stderr(format_rejection(checked, left))
    return left


def _print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print_to_stderr(line)


def _find_refusal(checked: CheckedMerge, options: MoveOptions) -> int | None:
    """Return None if the targets may be moved. Otherwise, print the reason and return the exit code."""
    if options.tree is not None and not get_merged_tree(checked).startswith(options.tree):
        _print_lines(format_outdated_tree(checked, options.tree))
        return exit_codes.CONFLICT
    if options.is_agreed:
        return None
    if options.is_json or not is_attended():
        _print_lines(format_how_to_agree(checked, options))
        return exit_codes.ASKS
    return None if _ask_person(checked) else exit_codes.DENIED


def _ask_person(checked: CheckedMerge) -> bool:
    """Ask whether to move the targets. If the user interrupts the command, discard the result."""
    *lines, question = format_question(checked)
    _print_lines(lines)
    try:
        return click.confirm(escape_for_terminal(question), default=None, err=True)
    except click.Abort:
        click.echo(err=True)  # print a newline after the question
        _tidy(checked, exit_codes.DENIED)
        raise


def print_remaining_branches(branches: Sequence[str], repository: Repository) -> None:
    """Print which integration branches are left and how to remove them."""
    try:
        is_here = Repository.at(Path.cwd()).common_dir == repository.common_dir
    except Mistake:
        is_here = False  # the current folder is not in a repository
    _print_lines(format_remaining_branches(branches, None if is_here else repository.main_folder))


def get_left_out_code(checked: CheckedMerge) -> int:
    """Return the exit code for a merge that left out branches, or that did not."""
    left_out: list[LeftOutBranch] = [one for _, outcome in checked.parts for one in outcome.train.left_out]
    if any(one.reason in ("conflict", "unresolved") for one in left_out):
        return exit_codes.CONFLICT
    return exit_codes.GOAL_NOT_MET if left_out else exit_codes.GOAL_MET
