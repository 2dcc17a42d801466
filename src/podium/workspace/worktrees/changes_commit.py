"""Bringing a worker's changes home: what it left in its checkout becomes a commit on its branch.

Workers cannot write to git themselves. A worker that ended early has its changes brought home as well: what
there is of the work is on the branch, and the checkout is clean.
"""

from __future__ import annotations

from dataclasses import dataclass

from anyio import CancelScope

from ...values.plain_text import escape_unprintable, truncate_text
from ..git.branch import advance_branch
from ..git.repository import Checkout, read_git_output
from ..git.revision import resolve_tree
from ..git.snapshot import take_snapshot, write_commit
from .worktree_status import read_worktree_status

LONGEST_SUBJECT = 72


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkCommit:
    """What a worker's branch holds since its base; `commit` is its newest."""

    commit: str
    commits: tuple[str, ...]
    files: tuple[str, ...]
    added: int
    removed: int


async def commit_work(checkout: Checkout, *, subject: str, body: str = "") -> WorkCommit:
    """Commit what the checkout holds and the branch does not. Doing it again finds nothing to do."""
    old = await read_git_output(checkout, "rev-parse", "--verify", "HEAD^{commit}")
    tree = await resolve_tree(checkout, await take_snapshot(checkout))
    head = old
    # Not to be cut short: git that is killed while it writes leaves a lock behind.
    with CancelScope(shield=True):
        if tree != await resolve_tree(checkout, old):
            head = await write_commit(checkout, tree, [old], _format_message(subject, body))
            await advance_branch(checkout, checkout.branch, old=old, new=head, tree=tree)
        # Also where a crash came between: the index may still be that of the commit before.
        await read_git_output(checkout, "read-tree", head)
    status = await read_worktree_status(checkout, main=checkout.base)
    return WorkCommit(
        commit=head,
        commits=tuple(one.id for one in status.commits),
        files=tuple(one.path for one in status.files),
        added=status.added,
        removed=status.removed,
    )


def _format_message(subject: str, body: str) -> str:
    first = truncate_text(" ".join(escape_unprintable(subject).split()), LONGEST_SUBJECT) or "Work of an agent"
    return f"{first}\n\n{body.strip()}\n" if body.strip() else f"{first}\n"
