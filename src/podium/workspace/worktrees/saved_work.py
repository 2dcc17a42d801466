"""Saved work: what was in a worktree when it was removed all the same, kept under a ref of its own."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ...values.errors import OutsideFailed
from ..git.repository import Checkout, Place, git, git_output
from ..git.snapshot import snapshot

SAVED = "refs/podium/saved/"
MOST_TRIES = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """Work under a ref; `commit` holds all files, and its parent the commits."""

    ref: str
    commit: str


async def save(checkout: Checkout) -> Saved:
    """Keep all that is in a worktree: its commits, its changes and its new files."""
    head = await git_output(checkout, "rev-parse", "HEAD")
    commit = await snapshot(checkout, message=f"Saved from the worktree of {checkout.branch}")
    same = await git_output(checkout, "rev-parse", f"{commit}^{{tree}}", f"{head}^{{tree}}")
    if len(set(same.split())) == 1:
        commit = head
    return await _kept(checkout, checkout.branch, commit)


async def save_head(place: Place, branch: str) -> Saved | None:
    """Keep the commit that a worktree without its folder is at; None where a branch or a remote has it."""
    head = await git_output(place, "rev-parse", "HEAD")
    alone = await git_output(place, "rev-list", "--count", head, "--not", "--branches", "--remotes", "--")
    return await _kept(place, branch, head) if int(alone) else None


async def _kept(place: Place, branch: str, commit: str) -> Saved:
    moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    for number in range(1, MOST_TRIES):
        ref = f"{SAVED}{branch}/{moment}" + (f"-{number}" if number > 1 else "")
        # The zeros say that there is no such ref yet; one that exists is never replaced.
        done = await git(place, "update-ref", ref, commit, "0" * len(commit))
        if done.code == 0:
            return Saved(ref=ref, commit=commit)
        if (await git(place, "rev-parse", "--verify", "--quiet", ref)).code != 0:
            break
    raise OutsideFailed(f"the work of {branch} could not be saved under {ref}: {done.err}")


async def all_saved(place: Place) -> list[Saved]:
    """All work that was saved in a repository, the oldest first."""
    listed = await git_output(place, "for-each-ref", "--sort=creatordate", "--format=%(objectname) %(refname)", SAVED)
    return [Saved(commit=commit, ref=ref) for commit, _, ref in (line.partition(" ") for line in listed.splitlines())]


def way_back(saved: Saved, branch: str) -> str:
    """The command that brings saved work back, on a branch beside the old one."""
    return f"git checkout -b {branch}-saved {saved.ref}"
