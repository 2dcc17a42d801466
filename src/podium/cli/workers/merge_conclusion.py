"""Finish `podium merge`: move the target if the user agrees, and remove unneeded integration branches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import click

from ...runs.pushed_work import remove_finished_refs
from ...runs.worker_lookup import RepoContext
from ...values.errors import Mistake, PodiumError
from ...workers.merge_run import TrainOutcome, merge_fields
from ...workspace.git.repository import Repository
from ...workspace.git.revision import HEADS, SHORT
from ...workspace.merging.fast_forward import fast_forward
from ...workspace.merging.integration_branch import (
    list_integration_branches,
    remove_integration_branch,
    remove_superseded_branches,
)
from ...workspace.merging.merge_train import LeftOutBranch, Train
from ..terminal import exit_codes
from ..terminal.terminal_input import is_attended
from ..terminal.text import as_json, escape_for_terminal, print_to_stderr
from .merge_report import format_agree_command, format_checked_tree, format_remaining_branches


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveOptions:
    """The options that decide whether the target moves.

    `commands` lists the checks given on the command line, `names` lists the files and folders that the merge is limited
    to, and `tree` is the tree that was reviewed.
    """

    commands: Sequence[str] = ()
    names: Sequence[str] = ()
    tree: str | None = None
    is_agreed: bool = False
    is_json: bool = False


def conclude_merge(there: RepoContext, outcome: TrainOutcome, options: MoveOptions) -> int:
    """Move the target if the user agrees, remove integration branches, and return the exit code.

    If the target does not contain the new integration branch, the branch is kept, unless the user rejected the result.
    """
    result = outcome.train
    refusal: int | None = None
    error: PodiumError | None = None
    if result.commit != result.base:
        refusal = _find_refusal(there.repository, result, options)
        error = _try_to_move(there.repository, result) if refusal is None else None
    elif result.ref is not None:
        print_to_stderr(f"{result.target} already contains the result")
    is_moved = result.commit != result.base and refusal is None and error is None
    if result.ref is not None and refusal is None and error is None:
        anyio.run(remove_integration_branch, there.repository, result.ref, result.commit)
    if is_moved:
        _remove_merged_refs(there, result)
    within = result.base if refusal == exit_codes.DENIED else result.commit
    left = anyio.run(tidy_branches, there.repository, within, result.ref)
    print_remaining_branches(left, there.repository)
    if options.is_json:
        ending = {"moved": is_moved, "error": None if error is None else str(error), "integration_branches": left}
        click.echo(as_json({**merge_fields(outcome), **ending}))
    if error is not None:
        raise error
    return get_left_out_code(result.left_out) if refusal is None else refusal


def _remove_merged_refs(there: RepoContext, result: Train) -> None:
    """Delete the remote refs of merged workers. If some cannot be deleted, print why."""
    merged = {one.branch for one in result.merged}
    for ref in anyio.run(partial(remove_finished_refs, there, branches=merged, target=result.commit)):
        if ref.act == "kept":
            print_to_stderr(f"the refs of {ref.branch} on {ref.remote} were kept: {ref.why}")


def _find_refusal(repository: Repository, result: Train, options: MoveOptions) -> int | None:
    """Return None if the target may be moved. Otherwise, print the reason and return the exit code."""
    assert result.ref is not None
    branch = result.ref.removeprefix(HEADS)
    if options.tree is not None and not result.tree.startswith(options.tree):
        print_to_stderr(
            f"{result.target} was not moved: the merge results in the tree {result.tree[:SHORT]}, not in the given "
            f"tree {options.tree[:SHORT]}"
        )
        print_to_stderr(
            f"the tree given with --tree is out of date, because {result.target} or a branch has changed; "
            f"review {branch}, then pass its tree {result.tree[:SHORT]} with --tree"
        )
        return exit_codes.CONFLICT
    if options.is_agreed:
        return None
    if options.is_json or not is_attended():
        print_to_stderr(
            f"{result.target} was not moved; {branch} contains the merged result; to move {result.target}, run:"
        )
        print_to_stderr(f"  {format_agree_command(result, options.commands, options.names)}")
        return exit_codes.ASKS
    return None if _ask_person(repository, result) else exit_codes.DENIED


def _ask_person(repository: Repository, result: Train) -> bool:
    """Ask whether to move the target. If the user declines or interrupts the command, discard the result."""
    question = f"Move {result.target} from {result.base[:SHORT]} to {format_checked_tree(result)}?"
    try:
        is_agreed = click.confirm(escape_for_terminal(question), default=None, err=True)
    except click.Abort:
        click.echo(err=True)  # print a newline after the question
        _discard_result(repository, result)
        raise
    if not is_agreed:
        _discard_result(repository, result)
    return is_agreed


def _discard_result(repository: Repository, result: Train) -> None:
    """Remove the integration branch of a result that the user rejected, unless the branch is in use."""
    assert result.ref is not None
    branch = result.ref.removeprefix(HEADS)
    is_removed = anyio.run(remove_integration_branch, repository, result.ref, result.commit)
    what = f"{branch} was removed" if is_removed else f"{branch} was kept, because it is in use"
    print_to_stderr(f"{result.target} was not moved, and {what}")


def _try_to_move(repository: Repository, result: Train) -> PodiumError | None:
    """Move the target to the result. Return None, or the error if the move failed."""
    try:
        anyio.run(_move_target, repository, result)
    except PodiumError as error:
        assert result.ref is not None
        print_to_stderr(f"{result.ref.removeprefix(HEADS)} contains the merged result")
        return error
    print_to_stderr(f"{result.target} is now at {result.commit[:SHORT]}, with {format_checked_tree(result)}")
    return None


async def _move_target(repository: Repository, result: Train) -> None:
    await fast_forward(
        repository,
        result.target,
        commit=result.commit,
        expected_tree=result.tree,
        expected_old=result.base,
    )


async def tidy_branches(repository: Repository, within: str, except_ref: str | None = None) -> list[str]:
    """Remove the integration branches whose content is in the commit `within`, and return the remaining ones.

    The branch with the ref `except_ref` is kept.
    """
    await remove_superseded_branches(repository, within, except_ref=except_ref)
    return [one.branch for one in await list_integration_branches(repository)]


def print_remaining_branches(branches: Sequence[str], repository: Repository) -> None:
    """Print which integration branches are left and how to remove them."""
    try:
        is_here = Repository.at(Path.cwd()).common_dir == repository.common_dir
    except Mistake:
        is_here = False  # the current folder is not in a repository
    for line in format_remaining_branches(branches, None if is_here else repository.main_folder):
        print_to_stderr(line)


def get_left_out_code(left_out: Sequence[LeftOutBranch]) -> int:
    """Return the exit code for a merge that left out these branches."""
    if any(one.reason in ("conflict", "unresolved") for one in left_out):
        return exit_codes.CONFLICT
    return exit_codes.GOAL_NOT_MET if left_out else exit_codes.GOAL_MET
