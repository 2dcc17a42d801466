"""Format the result of `podium merge` as text and as JSON fields."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...runs.branch_forecast import forecast_fields
from ...values.event import SCHEMA
from ...values.plain_text import escape_unprintable, format_count
from ...workspace.git.revision import HEADS, SHORT
from ...workspace.merging.merge_train import Train
from ...workspace.merging.overlap_forecast import BranchChanges, FileChange, Forecast
from ..terminal.text import fit_columns, truncate_line

if TYPE_CHECKING:
    from ...workers.conflict_resolution import ResolverRun

MOST_BRANCHES = 10
"""Maximum number of integration branches to list at a time, oldest first."""
MOST_FILES = 20
"""Maximum number of changed files to list."""
LONGEST_CHECK = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOutcome:
    """The forecast, the result of the merge train, the changes to the target, and the resolvers that were started."""

    forecast: Forecast
    train: Train
    changes: BranchChanges
    resolving: tuple[ResolverRun, ...] = ()


def format_train_report(result: Train) -> list[str]:
    """Return a line for each branch, which says that it was merged, or why it was left out."""
    lines = [f"merged: {one.branch} at {one.commit[:SHORT]}" for one in result.merged]
    for one in result.left_out:
        files = f" ({', '.join(map(escape_unprintable, one.files))})" if one.files else ""
        lines.append(f"left out: {one.branch}: {one.reason}: {one.why}{files}")
        lines += [f"    {line}" for line in one.output.splitlines()]
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
    ]


def _format_path(file: FileChange) -> str:
    return escape_unprintable(file.path if file.was is None else f"{file.was} → {file.path}")


def format_checked_tree(result: Train) -> str:
    """Describe the merged tree: its hash, and whether it was checked."""
    return f"the tree {result.tree[:SHORT]}{', as checked' if result.checks else ' (not checked)'}"


def format_agree_command(result: Train, commands: Sequence[str]) -> str:
    """Return the command that repeats the merge and moves the target, but only to the same tree."""
    checks = [word for text in commands for word in ("--check", text)]
    branches = [one.branch for one in result.merged]
    return shlex.join(["podium", "merge", *branches, "--onto", result.target, *checks, "--tree", result.tree, "--yes"])


def format_remaining_branches(branches: Sequence[str], folder: Path | None) -> list[str]:
    """Return lines about the remaining integration branches, with the command that removes them.

    `folder` is the repository, or None if it contains the current folder.
    """
    if not branches:
        return []
    what, them = ("an integration branch is", "it") if len(branches) == 1 else ("integration branches are", "them")
    place = [] if folder is None else ["-C", str(folder)]
    return [
        f"{what} left; when you no longer need {them}, remove {them} with:",
        f"  {shlex.join(['git', *place, 'branch', '-D', *branches[:MOST_BRANCHES]])}",
    ]


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
        "checks": list(result.checks),
        "changes": _changes_fields(outcome.changes),
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


def _changes_fields(changes: BranchChanges) -> dict[str, Any]:
    return {
        "added": changes.added,
        "removed": changes.removed,
        "files": [
            {
                "path": file.path,
                "was": file.was,
                "added": file.added,
                "removed": file.removed,
                "binary": file.is_binary,
            }
            for file in changes.files
        ],
    }
