"""List and remove the integration branches that merge trains have created.

A branch is removed only if it still points to the expected commit and is not checked out.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from ..git.repository import GitLocation, call_git, read_git_output
from ..git.revision import HEADS, resolve_location, resolve_tree

PREFIX = "podium/merge-"
FIELDS = "%(objectname) %(tree) %(if)%(worktreepath)%(then)checked-out%(else)free%(end) %(refname)"


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegrationBranch:
    """A branch that a merge train created, with its commit and its tree."""

    branch: str
    commit: str
    tree: str
    is_checked_out: bool = False


def name_integration_branch(at: datetime) -> str:
    """Return a name for the integration branch of a merge train that starts at this time."""
    return f"{PREFIX}{at:%Y%m%d-%H%M%S}"


async def list_integration_branches(repo: GitLocation) -> list[IntegrationBranch]:
    """Return the existing integration branches, sorted by name.

    The names contain the time, so the oldest comes first.
    """
    listed = await read_git_output(repo, "for-each-ref", f"--format={FIELDS}", f"{HEADS}{PREFIX}*")
    found = []
    for line in listed.splitlines():
        commit, tree, use, ref = line.split(" ", 3)
        found.append(
            IntegrationBranch(
                branch=ref.removeprefix(HEADS), commit=commit, tree=tree, is_checked_out=use == "checked-out"
            )
        )
    return found


async def remove_superseded_branches(repo: GitLocation, commit: str, *, except_ref: str | None) -> list[str]:
    """Remove the integration branches whose work `commit` contains, and return their names.

    Such a branch has the same tree as `commit`, and all its commits except merges are in the history of `commit`.
    The branch `except_ref` and branches that are checked out are kept.
    """
    place = resolve_location(repo)
    tree = await resolve_tree(place, commit)
    removed = []
    for one in await list_integration_branches(place):
        if one.tree != tree or one.is_checked_out or HEADS + one.branch == except_ref:
            continue
        own = await read_git_output(place, "rev-list", "--no-merges", "--max-count=1", one.commit, f"^{commit}")
        if not own and await remove_integration_branch(place, HEADS + one.branch, one.commit):
            removed.append(one.branch)
    return removed


async def remove_integration_branch(repo: GitLocation, ref: str, commit: str) -> bool:
    """Remove an integration branch that is at `commit` and not checked out. Return whether it was removed."""
    place = resolve_location(repo)
    if any(HEADS + one.branch == ref and one.is_checked_out for one in await list_integration_branches(place)):
        return False
    # Given the commit as the old value, git removes the ref only if nobody has moved it.
    return (await call_git(place, "update-ref", "-d", ref, commit)).code == 0
