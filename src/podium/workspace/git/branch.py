"""Check branch names, list branches and worktrees, and move a branch to an approved commit."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from ...values.errors import Mistake, OutsideFailed
from ...values.located_yaml import quote_text
from .repository import GitLocation, call_git, read_git_output

LONGEST = 200
USUAL = re.compile(r"\w[\w-]*(/\w[\w-]*)*", re.ASCII)
"""Matches names that git definitely allows, so that git need not be called to check them."""
HEADS = "refs/heads/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Worktree:
    """A worktree that git lists; `branch` is empty if its HEAD is detached."""

    path: Path
    branch: str


async def must_be_branch_name(place: GitLocation, branch: str) -> None:
    """Raise Mistake if `branch` is not a valid name for a Podium branch."""
    if not branch:
        raise Mistake("a worktree needs a branch name, and none was given; use a name like feat/login")
    why = _find_name_problem(branch)
    if (
        not why
        and not USUAL.fullmatch(branch)
        and (await call_git(place, "check-ref-format", f"{HEADS}{branch}")).code != 0
    ):
        why = "git does not allow it"
    if why:
        raise Mistake(f"{quote_text(branch)} is not a valid branch name: {why}; use a name like feat/login")


def _find_name_problem(branch: str) -> str:
    if branch.startswith("-"):
        return "it looks like an option"
    if not branch.isprintable():
        return "it contains unprintable characters"
    if len(branch.encode()) > LONGEST:
        return f"it is longer than {LONGEST} bytes"
    if branch in ("HEAD", "@") or re.fullmatch(r"[0-9a-fA-F]{40}|[0-9a-fA-F]{64}", branch):
        return "git would interpret it as a commit"
    if branch.startswith("refs/"):
        return "git would interpret it as the full name of a ref"
    if found := find_shell_character(branch):
        return f"it contains {found}, which a shell would interpret"
    if any(part.casefold() in (".git", "git~1") for part in branch.split("/")):
        return "it contains the path component .git or git~1, which is reserved for git"
    return ""


def find_shell_character(name: str) -> str:
    """Return the first character in a name that a shell would interpret, or an empty string if there is none.

    Such a character is unsafe in a branch name, because people and scripts paste branch names into commands.
    """
    found = _SHELL_CHARACTER.search(name)
    return found[0] if found is not None else ""


_SHELL_CHARACTER = re.compile(r"[$`;&|<>(){}'\"!*?\[\]\\~]|^#")


async def list_branches(place: GitLocation) -> list[str]:
    """Return the names of all local branches."""
    listed = await read_git_output(place, "for-each-ref", "--format=%(refname)", HEADS)
    return [line.removeprefix(HEADS) for line in listed.splitlines()]


def must_not_overlap_branches(branch: str, there: Collection[str]) -> None:
    """Raise Mistake if git cannot store a branch with this name alongside the existing branches."""
    for other in there:
        if other.startswith(f"{branch}/") or branch.startswith(f"{other}/"):
            raise Mistake(
                f"git cannot store both branches {branch!r} and {other!r}, because one name is a prefix of the "
                f"other; use a name like {branch.replace('/', '-')}-2"
            )


async def list_git_worktrees(place: GitLocation) -> list[Worktree]:
    """Return all worktrees that git lists, the main worktree first."""
    found, listed = [], await read_git_output(place, "worktree", "list", "--porcelain", "-z")
    for part in listed.split("\0\0"):
        lines = dict(line.partition(" ")[::2] for line in part.split("\0") if line)
        if "worktree" in lines:
            found.append(Worktree(path=Path(lines["worktree"]), branch=lines.get("branch", "").removeprefix(HEADS)))
    return found


async def advance_branch(
    place: GitLocation, branch: str, *, old: str, new: str, tree: str, lock: int | None = None
) -> None:
    """Move a branch from the commit `old` to its descendant `new`, whose tree must be `tree`.

    Raise Mistake, without moving the branch, if the branch is not at `old`, if `new` is not a descendant of `old`, or
    if the tree of `new` is not `tree`. Raise OutsideFailed if git fails. If the branch is checked out, the caller must
    update the files. `lock` is the descriptor of a lock that git inherits.
    """
    if await read_git_output(place, "rev-parse", "--verify", "--end-of-options", f"{new}^{{tree}}") != tree:
        raise Mistake(f"{new[:12]} is not the commit approved for {branch}; review it again and approve it")
    if (await call_git(place, "merge-base", "--is-ancestor", old, new)).code != 0:
        raise Mistake(f"{new[:12]} does not contain all commits on {branch}; merge {branch} into it first")
    moved = await call_git(place, "update-ref", f"{HEADS}{branch}", new, old, lock=lock)
    if moved.code != 0:
        now = await call_git(place, "rev-parse", "--verify", "--quiet", f"{HEADS}{branch}")
        if now.out.decode().strip() == new:
            return  # git failed only after it had moved the branch
        if now.out.decode().strip() == old:
            raise OutsideFailed(f"git could not move {branch}: {moved.err}")
        raise Mistake(f"{branch} has moved since {new[:12]} was approved; merge again and approve the result")
