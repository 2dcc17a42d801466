"""The overlap forecast of workers' branches, as people and programs read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...values.errors import Mistake
from ...workspace.git.repository import Repository, git
from ...workspace.git.revision import tips
from ...workspace.merging.overlap_forecast import Forecast, Overlap, forecast
from ..terminal.measure import counted

MOST_FILES = 5


async def current_branch(repository: Repository) -> str:
    """The branch that is checked out in the repository itself. Raises Mistake where there is none."""
    done = await git(Repository.at(repository.main), "symbolic-ref", "--quiet", "--short", "HEAD")
    if done.code != 0:
        raise Mistake(f"no branch is checked out in {repository.main}; --onto BRANCH says which one is meant")
    return done.out.decode().strip()


async def foreseen(root: Path, branches: Mapping[str, str], *, onto: str = "") -> Forecast | None:
    """How branches, each given with its base, would go together, so far as they are there; None where none is."""
    repository = Repository.at(root)
    target = onto or await current_branch(repository)
    there = await tips(repository, branches)
    known = {branch: base for branch, base in branches.items() if branch in there and branch != target}
    return await forecast(repository, known, onto=target) if known else None


def lines(told: Forecast) -> Iterator[str]:
    """The forecast for people: each branch, then what two of them share."""
    for one in told.onto_target:
        change = told.changes[one.first]
        files, commits = counted(len(change.files), "file"), counted(len(change.commits), "commit")
        how = f"merges onto {told.onto}" if one.merges else f"would clash with {told.onto}{_clashing(one)}"
        how = f"{told.onto} has it already" if one.is_in else how
        yield f"{one.first}: {files}, +{change.added} -{change.removed}, {commits}; {how}"
    for one in told.pairs:
        shared = f"both touch {_few(one.files)}" if one.files else "share no file"
        how = "would merge" if one.merges else f"would clash{_clashing(one)}"
        yield f"{one.first} and {one.second} {shared}; they {how}"


def fields(told: Forecast) -> dict[str, Any]:
    """The forecast for programs."""
    return {
        "onto": told.onto,
        "branches": [
            {
                "branch": branch,
                "files": [file.path for file in change.files],
                "added": change.added,
                "removed": change.removed,
                "commits": list(change.commits),
            }
            for branch, change in told.changes.items()
        ],
        "onto_target": [_overlap(one) for one in told.onto_target],
        "pairs": [_overlap(one) for one in told.pairs],
    }


def _overlap(one: Overlap) -> dict[str, Any]:
    return {
        "first": one.first,
        "second": one.second,
        "files": list(one.files),
        "merges": one.merges,
        "is_in": one.is_in,
        "through": one.through or None,
        "conflicts": [{"kind": clash.kind, "files": list(clash.files), "text": clash.text} for clash in one.conflicts],
    }


def _clashing(one: Overlap) -> str:
    where = f" in {_few(one.clashing)}" if one.clashing else ""
    return f"{where}, which is the clash of {one.through}" if one.through else where


def _few(files: tuple[str, ...]) -> str:
    few = ", ".join(files[:MOST_FILES])
    return few if len(files) <= MOST_FILES else f"{few} and {len(files) - MOST_FILES} more"
