"""Branches: which names may be given to one, and how one moves: to what was looked at, from where it was then."""

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
"""Names that git allows for certain; it need not be asked about them."""
HEADS = "refs/heads/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Worktree:
    """A worktree as git lists it; `branch` is empty where it is on none."""

    path: Path
    branch: str


async def must_be_branch_name(place: GitLocation, branch: str) -> None:
    """Raise Mistake where no branch of ours could be called so."""
    if not branch:
        raise Mistake("a worktree needs the name of a branch, and none was given; feat/login would do")
    why = _find_name_problem(branch)
    if (
        not why
        and not USUAL.fullmatch(branch)
        and (await call_git(place, "check-ref-format", f"{HEADS}{branch}")).code != 0
    ):
        why = "git allows no such name"
    if why:
        raise Mistake(f"{quote_text(branch)} cannot be the name of a branch: {why}; feat/login would do")


def _find_name_problem(branch: str) -> str:
    if branch.startswith("-"):
        return "it looks like an option"
    if not branch.isprintable():
        return "it has signs that do not show"
    if len(branch.encode()) > LONGEST:
        return f"it is longer than {LONGEST} bytes"
    if branch in ("HEAD", "@") or re.fullmatch(r"[0-9a-fA-F]{40}|[0-9a-fA-F]{64}", branch):
        return "git would take it for a commit"
    if branch.startswith("refs/"):
        return "git would take it for the full name of a ref"
    if any(part.casefold() in (".git", "git~1") for part in branch.split("/")):
        return "it has git's own folder in it"
    return ""


async def list_branches(place: GitLocation) -> list[str]:
    """The names of all local branches."""
    listed = await read_git_output(place, "for-each-ref", "--format=%(refname)", HEADS)
    return [line.removeprefix(HEADS) for line in listed.splitlines()]


def must_not_overlap_branches(branch: str, there: Collection[str]) -> None:
    """Raise Mistake where git cannot keep a branch of this name beside those that there are."""
    for other in there:
        if other.startswith(f"{branch}/") or branch.startswith(f"{other}/"):
            raise Mistake(
                f"git cannot keep the branches {branch!r} and {other!r} side by side, because one is the beginning "
                f"of the other; a name such as {branch.replace('/', '-')}-2 would do"
            )


async def list_git_worktrees(place: GitLocation) -> list[Worktree]:
    """All worktrees that git knows, the repository's own first."""
    found, listed = [], await read_git_output(place, "worktree", "list", "--porcelain", "-z")
    for part in listed.split("\0\0"):
        lines = dict(line.partition(" ")[::2] for line in part.split("\0") if line)
        if "worktree" in lines:
            found.append(Worktree(path=Path(lines["worktree"]), branch=lines.get("branch", "").removeprefix(HEADS)))
    return found


async def advance_branch(place: GitLocation, branch: str, *, old: str, new: str, tree: str) -> None:
    """Move a branch from the commit `old` to its descendant `new`, whose tree is the one that was approved.

    Raises Mistake, and moves nothing, where any of that is not so any more. A checkout that is on the
    branch keeps the files that it has; bringing those up to date is for the caller.
    """
    if await read_git_output(place, "rev-parse", "--verify", "--end-of-options", f"{new}^{{tree}}") != tree:
        raise Mistake(f"{new[:12]} is not what was approved for {branch}; look at it again and approve that")
    if (await call_git(place, "merge-base", "--is-ancestor", old, new)).code != 0:
        raise Mistake(f"{new[:12]} does not contain what {branch} has; merge {branch} into it first")
    moved = await call_git(place, "update-ref", f"{HEADS}{branch}", new, old)
    if moved.code != 0:
        now = await call_git(place, "rev-parse", "--verify", "--quiet", f"{HEADS}{branch}")
        if now.out.decode().strip() == old:
            raise OutsideFailed(f"git could not move {branch}: {moved.err}")
        raise Mistake(f"{branch} has moved since {new[:12]} was approved; merge again and approve that")
