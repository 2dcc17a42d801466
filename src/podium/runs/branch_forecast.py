"""Forecast how workers' branches would merge in a repository, and return the forecast as JSON fields."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..values.errors import Mistake
from ..workspace.git.repository import Repository, call_git
from ..workspace.git.revision import branch_tips
from ..workspace.merging.overlap_forecast import Forecast, Overlap, forecast_merges


async def read_current_branch(repository: Repository) -> str:
    """Return the branch that is checked out in the main worktree. Raise Mistake if HEAD is not on a branch."""
    done = await call_git(Repository.at(repository.main_folder), "symbolic-ref", "--quiet", "--short", "HEAD")
    if done.code != 0:
        raise Mistake(f"no branch is checked out in {repository.main_folder}; check one out, or name the target branch")
    return done.out.decode().strip()


async def forecast_branches(
    root: Path, branches: Mapping[str, str], *, onto: str = "", parts: Mapping[str, str] | None = None
) -> Forecast | None:
    """Forecast how branches would merge onto `onto`, by default the branch that is checked out in the main worktree.

    `branches` maps each branch to its base. If only a part of a branch is merged, `parts` maps the branch to a commit
    that contains only this part. `onto` itself and branches that do not exist are left out. Return None if no branch
    is left.
    """
    repository = Repository.at(root)
    target = onto or await read_current_branch(repository)
    existing = await branch_tips(repository, branches)
    bases = {branch: base for branch, base in branches.items() if branch in existing and branch != target}
    return await forecast_merges(repository, bases, onto=target, parts=parts) if bases else None


def forecast_fields(merge_forecast: Forecast) -> dict[str, Any]:
    """Return the forecast as JSON fields."""
    return {
        "onto": merge_forecast.onto,
        "branches": [
            {
                "branch": branch,
                "files": [file.path for file in change.files],
                "added": change.added,
                "removed": change.removed,
                "commits": list(change.commits),
            }
            for branch, change in merge_forecast.changes.items()
        ],
        "onto_target": [_overlap_fields(one) for one in merge_forecast.onto_target],
        "pairs": [_overlap_fields(one) for one in merge_forecast.pairs],
    }


def _overlap_fields(one: Overlap) -> dict[str, Any]:
    return {
        "first": one.first,
        "second": one.second,
        "files": list(one.files),
        "merges": one.merges,
        "is_in": one.is_in,
        "through": one.through or None,
        "conflicts": [{"kind": clash.kind, "files": list(clash.files), "text": clash.text} for clash in one.conflicts],
    }
