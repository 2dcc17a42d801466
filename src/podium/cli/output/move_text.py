"""The text and the JSON of `podium merge` about the move of one target, or of the targets in several repositories."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from msgspec import UNSET, UnsetType

from ...values.errors import PodiumError
from ...values.plain_text import format_count
from ...workers.merging.merge import CheckedMerge
from ...workers.merging.merge_run import MergeReport
from ...workspace.git.revision import HEADS, SHORT
from ...workspace.merging.merge_train import Train
from .merge_report import format_agree_command, format_checked_tree


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveOptions:
    """The options that decide whether the targets move.

    `onto` is the target given on the command line, `commands` lists the checks given there, `names` lists the files and
    folders that the merge is limited to, and `tree` is the tree that was reviewed.
    """

    onto: str = ""
    commands: Sequence[str] = ()
    names: Sequence[str] = ()
    tree: str | None = None
    is_agreed: bool = False
    is_json: bool = False


def get_merged_tree(checked: CheckedMerge) -> str:
    """Return the tree that an approval applies to. For several repositories, it is a hash of their trees."""
    train = _get_single_train(checked)
    return checked.tree if train is None else train.tree


def format_outdated_tree(checked: CheckedMerge, given: str) -> list[str]:
    """Return lines that say that the merge does not result in the given tree."""
    if (train := _get_single_train(checked)) is None:
        return [
            f"no target was moved: the merge results in the tree {checked.tree[:SHORT]}, not in the given tree "
            f"{given[:SHORT]}; a branch or a target has changed since the given tree was reported"
        ]
    return [
        f"{train.target} was not moved: the merge results in the tree {train.tree[:SHORT]}, not in the given "
        f"tree {given[:SHORT]}",
        f"the tree given with --tree is out of date, because {train.target} or a branch has changed; "
        f"review {_get_branch(train)}, then pass its tree {train.tree[:SHORT]} with --tree",
    ]


def format_how_to_agree(checked: CheckedMerge, options: MoveOptions) -> list[str]:
    """Return lines that say where the result is, and which command moves the targets to it."""
    if (train := _get_single_train(checked)) is not None:
        return [
            f"{train.target} was not moved; {_get_branch(train)} contains the merged result; to move {train.target}, "
            "run:",
            f"  {format_agree_command(train, options.commands, options.names)}",
        ]
    branches = ", ".join(
        f"{_get_branch(one.train)} in {part.context.root}" for part, one in checked.parts if one.train.ref is not None
    )
    return [
        f"no target was moved; the merged result is on {branches}; to move all targets, run:",
        f"  {_format_joint_agree_command(checked, options)}",
    ]


def _format_joint_agree_command(checked: CheckedMerge, options: MoveOptions) -> str:
    primary = checked.parts[0][1].train
    target = ["--onto", options.onto] if options.onto else []
    checks = [word for text in options.commands for word in ("--check", text)]
    branches = [one.branch for one in primary.merged]
    return shlex.join(["podium", "merge", *branches, *target, *checks, "--tree", checked.tree, "--yes"])


def format_question(checked: CheckedMerge) -> list[str]:
    """Return the question whether to move the targets, after lines about the moves if there are several targets."""
    if (train := _get_single_train(checked)) is not None:
        return [f"Move {train.target} from {train.base[:SHORT]} to {format_checked_tree(train)}?"]
    moved = {move.root for move in checked.moves}
    lines = [
        f"{one.train.target} in {part.context.root}: from {one.train.base[:SHORT]} to {format_checked_tree(one.train)}"
        for part, one in checked.parts
        if part.context.root in moved
    ]
    return [*lines, f"Move {format_count(len(moved), 'target')}?"]


def format_rejection(checked: CheckedMerge, left: Sequence[Sequence[str]]) -> str:
    """Return what happened to a result that the user rejected. `left` are the remaining integration branches."""
    if (train := _get_single_train(checked)) is None:
        return "no target was moved"
    branch = _get_branch(train)
    what = f"{branch} was kept, because it is in use" if branch in left[0] else f"{branch} was removed"
    return f"{train.target} was not moved, and {what}"


def format_moved_targets(checked: CheckedMerge) -> list[str]:
    """Return a line for each target that has moved."""
    if (train := _get_single_train(checked)) is not None:
        return [f"{train.target} is now at {train.commit[:SHORT]}, with {format_checked_tree(train)}"]
    return [f"{move} is now at {move.new[:SHORT]}" for move in checked.moves]


def format_unchanged_targets(checked: CheckedMerge) -> list[str]:
    """Return a line that says that the targets did not have to move, if a branch was merged."""
    if all(one.train.ref is None for _, one in checked.parts):
        return []
    train = _get_single_train(checked)
    return [
        "all targets already contain the result" if train is None else f"{train.target} already contains the result"
    ]


def format_kept_results(checked: CheckedMerge) -> list[str]:
    """Return a line that says where the result is, if its target could not be moved."""
    train = _get_single_train(checked)
    return [] if train is None or train.ref is None else [f"{_get_branch(train)} contains the merged result"]


class RepositoryReport(MergeReport, frozen=True, kw_only=True):
    """The merge in one repository, with its remaining integration branches. `repo` is set if there are several."""

    integration_branches: list[str]
    repo: str | UnsetType = UNSET


class MergeAnswer(RepositoryReport, frozen=True, kw_only=True):
    """A merge: that in the primary repository, and in `also` those in the others, if there are any."""

    moved: bool
    error: str | None
    joint_tree: str | UnsetType = UNSET
    also: list[RepositoryReport] | UnsetType = UNSET


def build_merge_answer(
    checked: CheckedMerge, left: Sequence[list[str]], *, is_moved: bool, error: PodiumError | None
) -> MergeAnswer:
    """Return the merge as it is printed with `--json`. `left` lists the remaining branches of each repository."""
    (primary, outcome), *others = checked.parts
    answer = partial(
        MergeAnswer.of,
        outcome,
        integration_branches=left[0],
        moved=is_moved,
        error=None if error is None else str(error),
    )
    if not others:
        return answer()
    also = [
        RepositoryReport.of(one, integration_branches=branches, repo=part.context.root)
        for (part, one), branches in zip(others, left[1:], strict=True)
    ]
    return answer(repo=primary.context.root, joint_tree=checked.tree, also=also)


def _get_single_train(checked: CheckedMerge) -> Train | None:
    """Return the merge train, or None if there are several repositories, each with its own."""
    return checked.parts[0][1].train if len(checked.parts) == 1 else None


def _get_branch(train: Train) -> str:
    assert train.ref is not None
    return train.ref.removeprefix(HEADS)
