"""Read the status of a worktree: its uncommitted files, and its commits that are not merged anywhere."""

from __future__ import annotations

import os
from dataclasses import dataclass

from ..git.repository import Checkout, call_git, read_git_output, split_nul_paths
from ..git.tracked_files import list_new_files

MOST_COMMITS = 200
LOOKING_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A commit in a worktree."""

    id: str
    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedFile:
    """A file that differs from the base; line counts are 0 for binary files."""

    path: str
    added: int
    removed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorktreeStatus:
    """A worktree compared with its base and with the repository.

    `ahead` counts commits since the base, `behind` counts commits in the main worktree's HEAD that the worktree lacks,
    and `unmerged` counts commits since the base that are in neither that HEAD nor any remote. `modified` and
    `untracked` count uncommitted files, without those that tools generate. `commits` contains the newest commits since
    the base.
    """

    ahead: int
    behind: int
    unmerged: int
    modified: int
    untracked: int
    commits: tuple[Commit, ...]
    files: tuple[ChangedFile, ...]

    @property
    def added(self) -> int:
        return sum(file.added for file in self.files)

    @property
    def removed(self) -> int:
        return sum(file.removed for file in self.files)

    @property
    def is_clean(self) -> bool:
        """Whether everything is committed, and all commits are in the main worktree's HEAD or on a remote."""
        return not (self.modified or self.untracked or self.unmerged)

    def describe_unsaved(self) -> str:
        """Describe in a few words the work that would be lost."""
        parts = [
            (self.modified, "uncommitted changed file", "uncommitted changed files"),
            (self.untracked, "untracked file", "untracked files"),
            (self.unmerged, "unmerged commit", "unmerged commits"),
        ]
        return " and ".join(f"{number} {one if number == 1 else many}" for number, one, many in parts if number)


async def read_worktree_status(checkout: Checkout, *, main: str) -> WorktreeStatus:
    """Return the status of a worktree. `main` is the commit at the main worktree's HEAD."""
    listing = ("status", "--porcelain=v1", "-z", "--no-renames", "--untracked-files=no")
    changed = split_nul_paths(await read_git_output(checkout, *listing, timeout=LOOKING_SECONDS))
    new = await list_new_files(checkout, groups=True)
    log = await read_git_output(
        checkout, "log", "-z", f"--max-count={MOST_COMMITS}", "--format=%H %s", f"{checkout.base}..HEAD"
    )
    commits = tuple(
        Commit(id=id, subject=subject) for id, _, subject in (line.partition(" ") for line in split_nul_paths(log))
    )
    return WorktreeStatus(
        ahead=await _count_commits(checkout, "HEAD", f"^{checkout.base}"),
        behind=await _count_commits(checkout, main, "^HEAD"),
        unmerged=await _count_commits(checkout, "HEAD", f"^{checkout.base}", f"^{main}", "--not", "--remotes"),
        modified=len(changed),
        untracked=len(new),
        commits=commits,
        files=await _list_changed_files(checkout),
    )


async def _count_commits(checkout: Checkout, *which: str) -> int:
    return int(await read_git_output(checkout, "rev-list", "--count", *which, "--"))


async def _list_changed_files(checkout: Checkout) -> tuple[ChangedFile, ...]:
    done = await call_git(
        checkout, "diff", "--numstat", "-z", "--no-renames", checkout.base, "--", timeout=LOOKING_SECONDS
    )
    found = []
    for line in split_nul_paths(os.fsdecode(done.out)):
        added, removed, path = line.split("\t", 2)
        found.append(ChangedFile(path=path, added=_parse_line_count(added), removed=_parse_line_count(removed)))
    return tuple(found)


def _parse_line_count(text: str) -> int:
    return int(text) if text.isdecimal() else 0
