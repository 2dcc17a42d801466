"""Branches and commits: what a branch stands for right now, what a commit holds, what comes before it.

Names move and ids do not, so a name is looked up once and everything after that is said of the id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from ...values.errors import Mistake, OutsideFailed
from ...values.plain_text import escape_unprintable, truncate_text
from .repository import Checkout, GitLocation, Repository, call_git, read_git_output, root_folder

HEADS = "refs/heads/"
SHORT = 12


def resolve_location(place: GitLocation) -> Repository | Checkout:
    """The place, found once, so that git discovers nothing from here on."""
    return Repository.at(place) if isinstance(place, Path) else place


async def tips(repo: GitLocation, branches: Iterable[str]) -> dict[str, str]:
    """The commits of those of the branches that exist."""
    wanted = {HEADS + branch: branch for branch in branches if branch and branch.isprintable()}
    if not wanted:
        return {}
    listed = await read_git_output(repo, "for-each-ref", "--format=%(objectname) %(refname)", *wanted)
    found = (line.split(" ", 1) for line in listed.splitlines())
    return {wanted[ref]: commit for commit, ref in found if ref in wanted}


async def branch_tip(repo: GitLocation, branch: str) -> str:
    """The commit of a branch. Raises Mistake where there is none of that name."""
    if (found := (await tips(repo, [branch])).get(branch)) is None:
        if not await read_git_output(repo, "for-each-ref", "--count=1", HEADS):
            raise Mistake(f"{root_folder(repo)} has no commits yet, so that there is no branch; commit first")
        raise Mistake(
            f"there is no branch {escape_unprintable(branch)!r} in {root_folder(repo)}; `git branch` "
            "lists those that are there"
        )
    return found


async def resolve_tree(repo: GitLocation, commit: str) -> str:
    """The tree that a commit holds."""
    return await read_git_output(repo, "rev-parse", "--verify", "--end-of-options", f"{commit}^{{tree}}")


async def contains_commit(repo: GitLocation, commit: str, earlier: str) -> bool:
    """Whether `earlier` is `commit` itself or comes before it."""
    done = await call_git(repo, "merge-base", "--is-ancestor", earlier, commit)
    if done.code not in (0, 1):
        raise OutsideFailed(f"git merge-base failed: {escape_unprintable(truncate_text(done.err, 300))}")
    return done.code == 0


async def must_contain_commits(repo: GitLocation, branch: str, commits: Mapping[str, str]) -> None:
    """Raise Mistake where a branch exists and lacks one of these commits, each given by what people call it."""
    if (now := (await tips(repo, [branch])).get(branch)) is None:
        return
    for name, commit in commits.items():
        if not await contains_commit(repo, now, commit):
            raise Mistake(
                f"{escape_unprintable(branch)} exists already and has not all of "
                f"{escape_unprintable(name)}, which it should begin with; "
                f"merge that into it, or name a new branch"
            )


def decode_path(raw: bytes) -> str:
    """A file's name as text that can be shown and sent; bytes that are no text are written out."""
    return raw.decode(errors="backslashreplace")
