"""Forecast how workers' branches would merge in a repository."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ...values.column import DocumentPart
from ...values.errors import Mistake
from ...workspace.git.repository import Repository, call_git
from ...workspace.git.revision import branch_tips
from ...workspace.merging.overlap_forecast import Forecast, Overlap, forecast_merges


class BranchForecast(DocumentPart, frozen=True, kw_only=True):
    """The changes on a branch, with the paths of the changed files."""

    branch: str
    files: list[str]
    added: int
    removed: int
    commits: tuple[str, ...]


class ForecastReport(DocumentPart, frozen=True, kw_only=True):
    """A forecast as it is sent: the branches, and their overlaps with the target and with each other."""

    onto: str
    branches: list[BranchForecast]
    onto_target: tuple[Overlap, ...]
    pairs: tuple[Overlap, ...]


def build_forecast_report(forecast: Forecast) -> ForecastReport:
    """Return a forecast as it is sent."""
    branches = [
        BranchForecast.of(change, branch=branch, files=[file.path for file in change.files])
        for branch, change in forecast.changes.items()
    ]
    return ForecastReport.of(forecast, branches=branches)


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
