"""Resolve a branch to its commit and a commit to its tree, and compare histories.

A branch can move, but the id of a commit does not change, so a name is resolved once, and then only the id is used.
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
    """Return the repository or checkout at a location, so that git does not have to search for it on every call.

    Raise Mistake for a path that is not in a repository.
    """
    return Repository.at(place) if isinstance(place, Path) else place


async def branch_tips(repo: GitLocation, branches: Iterable[str]) -> dict[str, str]:
    """Return the commit of each branch, keyed by branch name. Branches that do not exist are left out."""
    wanted = {HEADS + branch: branch for branch in branches if branch and branch.isprintable()}
    if not wanted:
        return {}
    listed = await read_git_output(repo, "for-each-ref", "--format=%(objectname) %(refname)", *wanted)
    found = (line.split(" ", 1) for line in listed.splitlines())
    return {wanted[ref]: commit for commit, ref in found if ref in wanted}


async def branch_tip(repo: GitLocation, branch: str) -> str:
    """Return the commit of a branch. Raise Mistake if there is no such branch."""
    if (found := (await branch_tips(repo, [branch])).get(branch)) is None:
        if not await read_git_output(repo, "for-each-ref", "--count=1", HEADS):
            raise Mistake(f"{root_folder(repo)} has no commits yet, so it has no branches; commit first")
        raise Mistake(
            f"branch {escape_unprintable(branch)!r} not found in {root_folder(repo)}; "
            "run git branch to list the branches"
        )
    return found


async def resolve_tree(repo: GitLocation, commit: str) -> str:
    """Return the tree of a commit."""
    return await read_git_output(repo, "rev-parse", "--verify", "--end-of-options", f"{commit}^{{tree}}")


async def contains_commit(repo: GitLocation, commit: str, earlier: str) -> bool:
    """Return whether `earlier` is `commit` itself or one of its ancestors. Raise OutsideFailed if git fails."""
    done = await call_git(repo, "merge-base", "--is-ancestor", earlier, commit)
    if done.code not in (0, 1):
        raise OutsideFailed(f"git merge-base failed: {escape_unprintable(truncate_text(done.err, 300))}")
    return done.code == 0


async def must_contain_commits(repo: GitLocation, branch: str, commits: Mapping[str, str]) -> None:
    """Raise Mistake if a branch exists but lacks any of these commits, which are keyed by display name."""
    if (now := (await branch_tips(repo, [branch])).get(branch)) is None:
        return
    for name, commit in commits.items():
        if not await contains_commit(repo, now, commit):
            own, other = escape_unprintable(branch), escape_unprintable(name)
            raise Mistake(
                f"{own} already exists and does not contain all of {other}, which it should start from; "
                f"merge {other} into {own}, or choose a new branch name"
            )


def decode_path(raw: bytes) -> str:
    """Decode a path to a string that can be displayed and sent. Bytes that are not UTF-8 are escaped."""
    return raw.decode(errors="backslashreplace")
