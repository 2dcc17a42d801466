"""Format the result of `podium merge` as text."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...system.program_folders import describe_changed_programs
from ...values.plain_text import escape_unprintable, format_count, join_some
from ...workers.merging.merge_run import TrainOutcome
from ...workspace.git.revision import SHORT
from ...workspace.merging.merge_train import Train
from ...workspace.merging.overlap_forecast import FileChange, Forecast, Overlap
from .text import fit_columns, truncate_line

MOST_SHARED_FILES = 5


MOST_BRANCHES = 10
"""Maximum number of integration branches to list in the command that removes them."""
MOST_FILES = 20
"""Maximum number of changed files to list."""
LONGEST_CHECK = 60


def format_train_report(result: Train) -> list[str]:
    """Return a line for each branch: whether it was merged or has no commits, or why it was left out.

    If a branch was left out, the output of the failed check or the conflicting lines follow its line, if there are any.
    """
    lines, head, onto = [], result.base, result.target
    for one in result.merged:
        if one.commit == head:
            lines.append(f"nothing to merge: {one.branch} has no commits that {onto} lacks")
        else:
            lines.append(f"merged: {'a part of ' if one.is_part else ''}{one.branch} at {one.commit[:SHORT]}")
            head, onto = one.commit, f"{result.target} with the branches above"
    for left in result.left_out:
        files = f" ({', '.join(map(escape_unprintable, left.files))})" if left.files else ""
        lines.append(f"left out: {left.branch}: {left.reason}: {left.why}{files}")
        lines += [f"    {line}" for line in left.output.splitlines()]
    return lines


def format_changes(outcome: TrainOutcome, *, most: int) -> list[str]:
    """Return lines about the checks that passed and the changes to the target: the total, and the first files.

    The lines about files are at most `most` columns wide.
    """
    changes = outcome.changes
    if not changes.files:
        return []
    total = f"{format_count(len(changes.files), 'file')}, +{changes.added} -{changes.removed}"
    listed = changes.files[:MOST_FILES]
    rows = [
        [f"  {'binary' if file.is_binary else f'+{file.added} -{file.removed}'}", _format_path(file)] for file in listed
    ]
    others = len(changes.files) - len(listed)
    checks = [truncate_line(name, LONGEST_CHECK) for name in outcome.train.checks]
    return [
        *([f"checked with: {', '.join(checks)}"] if checks else []),
        f"changes to {outcome.train.target}: {total}",
        *fit_columns(rows, most=most),
        *([f"  and {format_count(others, 'more file')}"] if others else []),
        *([describe_changed_programs(outcome.programs)] if outcome.programs else []),
    ]


def _format_path(file: FileChange) -> str:
    return escape_unprintable(file.path if file.was is None else f"{file.was} → {file.path}")


def format_checked_tree(result: Train) -> str:
    """Describe the merged tree: its hash, and whether it was checked."""
    return f"the tree {result.tree[:SHORT]}{', as checked' if result.checks else ' (not checked)'}"


def format_agree_command(result: Train, commands: Sequence[str], names: Sequence[str] = ()) -> str:
    """Return the command that repeats the merge and moves the target, but only to the same tree."""
    checks = [word for text in commands for word in ("--check", text)]
    checks += [word for name in names for word in ("--only", name)]
    branches = [one.branch for one in result.merged]
    return shlex.join(["podium", "merge", *branches, "--onto", result.target, *checks, "--tree", result.tree, "--yes"])


def format_remaining_branches(branches: Sequence[str], folder: Path | None) -> list[str]:
    """Return lines about the remaining integration branches, with the command that removes them.

    `folder` is the repository that the command must name. It is None if the current folder is in the repository.
    """
    if not branches:
        return []
    intro = (
        "an integration branch still exists; when you no longer need it, remove it with:"
        if len(branches) == 1
        else "integration branches still exist; when you no longer need them, remove them with:"
    )
    place = [] if folder is None else ["-C", str(folder)]
    return [
        intro,
        f"  {shlex.join(['git', *place, 'branch', '-D', *branches[:MOST_BRANCHES]])}",
    ]


def format_forecast(merge_forecast: Forecast) -> Iterator[str]:
    """Yield the forecast as lines, first for each branch, then for each pair of branches."""
    for one in merge_forecast.onto_target:
        change = merge_forecast.changes[one.first]
        files, commits = format_count(len(change.files), "file"), format_count(len(change.commits), "commit")
        how = (
            f"merges onto {merge_forecast.onto}"
            if one.merges
            else f"would conflict with {merge_forecast.onto}{_format_conflict(one)}"
        )
        how = f"already in {merge_forecast.onto}" if one.is_in else how
        yield f"{one.first}: {files}, +{change.added} -{change.removed}, {commits}; {how}"
    for one in merge_forecast.pairs:
        shared = f"both change {_format_file_list(one.files)}" if one.files else "have no files in common"
        how = "would merge" if one.merges else f"would conflict{_format_conflict(one)}"
        yield f"{one.first} and {one.second} {shared}; they {how}"


def _format_conflict(one: Overlap) -> str:
    where = f" in {_format_file_list(one.conflict_files)}" if one.conflict_files else ""
    return f"{where}, because of changes in {one.through}" if one.through else where


def _format_file_list(files: tuple[str, ...]) -> str:
    return join_some([escape_unprintable(file) for file in files], MOST_SHARED_FILES)
