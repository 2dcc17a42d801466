"""Branches and commits: what a branch stands for right now, what a commit holds, what comes before it.

Names move and ids do not, so a name is looked up once and everything after that is said of the id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from ...values.errors import Mistake, OutsideFailed
from ...values.plain_text import cut, plain
from .repository import Checkout, Place, Repository, folder_of, git, git_output

HEADS = "refs/heads/"
SHORT = 12


def pinned(place: Place) -> Repository | Checkout:
    """The place, found once, so that git discovers nothing from here on."""
    return Repository.at(place) if isinstance(place, Path) else place


async def tips(repo: Place, branches: Iterable[str]) -> dict[str, str]:
    """The commits of those of the branches that exist."""
    wanted = {HEADS + branch: branch for branch in branches if branch and branch.isprintable()}
    if not wanted:
        return {}
    listed = await git_output(repo, "for-each-ref", "--format=%(objectname) %(refname)", *wanted)
    found = (line.split(" ", 1) for line in listed.splitlines())
    return {wanted[ref]: commit for commit, ref in found if ref in wanted}


async def tip(repo: Place, branch: str) -> str:
    """The commit of a branch. Raises Mistake where there is none of that name."""
    if (found := (await tips(repo, [branch])).get(branch)) is None:
        if not await git_output(repo, "for-each-ref", "--count=1", HEADS):
            raise Mistake(f"{folder_of(repo)} has no commits yet, so that there is no branch; commit first")
        raise Mistake(
            f"there is no branch {plain(branch)!r} in {folder_of(repo)}; `git branch` lists those that are there"
        )
    return found


async def tree_of(repo: Place, commit: str) -> str:
    """The tree that a commit holds."""
    return await git_output(repo, "rev-parse", "--verify", "--end-of-options", f"{commit}^{{tree}}")


async def contains(repo: Place, commit: str, earlier: str) -> bool:
    """Whether `earlier` is `commit` itself or comes before it."""
    done = await git(repo, "merge-base", "--is-ancestor", earlier, commit)
    if done.code not in (0, 1):
        raise OutsideFailed(f"git merge-base failed: {plain(cut(done.err, 300))}")
    return done.code == 0


async def must_hold(repo: Place, branch: str, commits: Mapping[str, str]) -> None:
    """Raise Mistake where a branch exists and lacks one of these commits, each given by what people call it."""
    if (now := (await tips(repo, [branch])).get(branch)) is None:
        return
    for name, commit in commits.items():
        if not await contains(repo, now, commit):
            raise Mistake(
                f"{plain(branch)} exists already and has not all of {plain(name)}, which it should begin with; "
                f"merge that into it, or name a new branch"
            )


def path_text(raw: bytes) -> str:
    """A file's name as text that can be shown and sent; bytes that are no text are written out."""
    return raw.decode(errors="backslashreplace")
