"""Bringing a worker's changes home: what it left in its checkout becomes a commit on its branch.

Workers cannot write to git themselves. A worker that ended early has its changes brought home as well: what
there is of the work is on the branch, and the checkout is clean.
"""

from __future__ import annotations

from dataclasses import dataclass

from anyio import CancelScope

from ...values.plain_text import cut, plain
from ..git.branch import advance
from ..git.repository import Checkout, git_output
from ..git.revision import tree_of
from ..git.snapshot import committed, snapshot
from .worktree_status import standing

LONGEST_SUBJECT = 72


@dataclass(frozen=True, slots=True, kw_only=True)
class Brought:
    """What a worker's branch holds since its base; `commit` is its newest."""

    commit: str
    commits: tuple[str, ...]
    files: tuple[str, ...]
    added: int
    removed: int


async def brought_home(checkout: Checkout, *, subject: str, body: str = "") -> Brought:
    """Commit what the checkout holds and the branch does not. Doing it again finds nothing to do."""
    old = await git_output(checkout, "rev-parse", "--verify", "HEAD^{commit}")
    tree = await tree_of(checkout, await snapshot(checkout))
    head = old
    # Not to be cut short: git that is killed while it writes leaves a lock behind.
    with CancelScope(shield=True):
        if tree != await tree_of(checkout, old):
            head = await committed(checkout, tree, [old], _message(subject, body))
            await advance(checkout, checkout.branch, old=old, new=head, tree=tree)
        # Also where a crash came between: the index may still be that of the commit before.
        await git_output(checkout, "read-tree", head)
    stands = await standing(checkout, main=checkout.base)
    return Brought(
        commit=head,
        commits=tuple(one.id for one in stands.commits),
        files=tuple(one.path for one in stands.files),
        added=stands.added,
        removed=stands.removed,
    )


def _message(subject: str, body: str) -> str:
    first = cut(" ".join(plain(subject).split()), LONGEST_SUBJECT) or "Work of an agent"
    return f"{first}\n\n{body.strip()}\n" if body.strip() else f"{first}\n"
