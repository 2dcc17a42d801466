"""Define the repository that a run works in, and the interface to a team's work in it.

A pattern uses the interface through the operation; the implementation uses git.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from .gate import ActingTool
from .placement import Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkBranch:
    """A branch with the work from one step, and the branches that it builds on."""

    branch: str
    commit: str
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedWork:
    """A team's merged work. `left_out` maps each branch that was not merged to the reason."""

    branch: str = ""
    commit: str = ""
    left_out: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """Files to write to a folder.

    `render` is called with the existing files and returns the new ones, both keyed by path.
    """

    folder: str
    render: Callable[[Mapping[str, str]], Mapping[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRepository:
    """The repository that a run works in. The functions that return a part of it make that part on first use."""

    checkouts: tuple[str, ...]
    """The checkouts that the run works in, the primary one first."""
    make_check_tool: Callable[[tuple[str, ...], str], ActingTool]
    """Creates a tool for running commands on a clean checkout of a commit.

    If the commit is empty, the tool checks out the current work."""
    save_before_change: Callable[[], Awaitable[None]]
    """Called before each action that may change files."""
    get_placement: Callable[[], Placement]
    """Returns the placement for starting workers in the repository."""
    get_work: Callable[[], TeamWork]
    """Returns the interface to the team's work in the repository."""


class TeamWork(Protocol):
    """The work of a run's team in the repository."""

    async def require_branch(self) -> None:
        """Raise Mistake if the run's checkout is not on a branch with a commit. Merging work needs such a branch."""
        ...

    async def commit_checkout(self) -> str:
        """Create and return a commit of the current state of the run's own checkout. The checkout does not change."""
        ...

    async def list_changes(self, base: str, commit: str) -> Mapping[str, str]:
        """Return the paths that differ between two commits, with git's letter for each: A, M, D or T."""
        ...

    async def read_diff(self, base: str, commit: str, *, without: str = "") -> str:
        """Return the diff between two commits, excluding the files in the folder `without`."""
        ...

    def open_commit(self, commit: str) -> AbstractAsyncContextManager[str]:
        """Check a commit out into a temporary folder, and return the folder. Remove it when the block ends."""
        ...

    async def keep_snapshot(self, name: str, commits: Mapping[str, str]) -> None:
        """Record these commits as the snapshot `name` of this run, to protect them from git's garbage collection."""
        ...

    async def merge_branches(self, branches: Sequence[WorkBranch], *, name: str, records: Records | None) -> MergedWork:
        """Merge the branches into a new branch that starts at the run's branch, and commit the records there.

        A branch that conflicts is not merged. If a branch was deleted, its commit is merged. An existing branch called
        `name` was left by an interrupted attempt and is replaced.
        """
        ...

    async def restore_checkout(self, commit: str) -> None:
        """Replace the files in the run's own checkout with those of a commit. Its branch does not move."""
        ...

    async def write_records(self, records: Records) -> None:
        """Write the records to the run's own checkout."""
        ...
