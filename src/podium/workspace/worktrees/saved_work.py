"""Save work that would be lost when a worktree is removed, and list the saved work. Each save creates a new ref."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ...values.errors import OutsideFailed
from ..git.repository import Checkout, GitLocation, call_git, read_git_output
from ..git.snapshot import take_snapshot

SAVED_REFS = "refs/podium/saved/"
MOST_TRIES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedWork:
    """Work saved under a ref. `commit` contains all files, and its history contains the worktree's commits."""

    ref: str
    commit: str


async def save_work(checkout: Checkout) -> SavedWork:
    """Save the work in a worktree: its commits, its changes, and its new files unless git ignores them."""
    head = await read_git_output(checkout, "rev-parse", "HEAD")
    commit = await take_snapshot(checkout, message=f"Saved from the worktree of {checkout.branch}")
    same = await read_git_output(checkout, "rev-parse", f"{commit}^{{tree}}", f"{head}^{{tree}}")
    if len(set(same.split())) == 1:
        commit = head
    return await _write_saved_ref(checkout, checkout.branch, commit)


async def save_head(place: GitLocation, branch: str) -> SavedWork | None:
    """Save the HEAD of a worktree whose folder no longer exists. Return None if a branch or remote contains it."""
    head = await read_git_output(place, "rev-parse", "HEAD")
    alone = await read_git_output(place, "rev-list", "--count", head, "--not", "--branches", "--remotes", "--")
    return await _write_saved_ref(place, branch, head) if int(alone) else None


async def _write_saved_ref(place: GitLocation, branch: str, commit: str) -> SavedWork:
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    for number in range(1, MOST_TRIES):
        ref = f"{SAVED_REFS}{branch}/{moment}" + (f"-{number}" if number > 1 else "")
        # The zeros mean that the ref must not exist yet, so that an existing ref is never replaced.
        done = await call_git(place, "update-ref", ref, commit, "0" * len(commit))
        if done.code == 0:
            return SavedWork(ref=ref, commit=commit)
        if (await call_git(place, "rev-parse", "--verify", "--quiet", ref)).code != 0:
            break
    raise OutsideFailed(f"cannot save the work of {branch} under {ref}: {done.err}")


async def list_saved_work(place: GitLocation) -> list[SavedWork]:
    """Return all saved work in a repository, oldest first."""
    listed = await read_git_output(
        place, "for-each-ref", "--sort=creatordate", "--format=%(objectname) %(refname)", SAVED_REFS
    )
    return [
        SavedWork(commit=commit, ref=ref) for commit, _, ref in (line.partition(" ") for line in listed.splitlines())
    ]


def restore_command(saved: SavedWork, branch: str) -> str:
    """Return the command that restores saved work on the new branch `BRANCH-saved`."""
    return f"git checkout -b {branch}-saved {saved.ref}"
