"""Read the diff between a worker's base and its branch or checkout."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from ...values.errors import Mistake
from ...views.worker_state import CheckoutWork, WorkerState
from ...workspace.git.repository import GitLocation, read_git_output
from ...workspace.git.revision import branch_tip, resolve_tree
from ...workspace.git.snapshot import take_snapshot
from ...workspace.merging.partial_commit import DIFF_FORM, LONGEST, read_patch
from ..merging.pushed_work import fetch_pushed_work
from .worker_lookup import RepoContext


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerDiff:
    """The diff between a worker's base and a commit, and the tree of that commit.

    If `is_committed` is true, the commit is the tip of the worker's branch. Otherwise it is a snapshot of its checkout,
    or the last push of a worker on another machine.
    """

    text: str
    base: str
    commit: str
    tree: str
    is_committed: bool

    @property
    def digest(self) -> str:
        """A digest that identifies exactly these changes, so that a choice matches the diff that was shown."""
        return sha256(f"{self.base} {self.tree}\n{self.text}".encode(errors="surrogateescape")).hexdigest()


def require_own_branch(worker: WorkerState) -> None:
    """Raise Mistake if a worker does not work on a separate branch, or never had a checkout."""
    if worker.worker_task.is_reader:
        raise Mistake(
            f"{worker.name} is read-only and has no changes; run podium workers output {worker.name} to see its answer"
        )
    if worker.worker_task.is_here:
        raise Mistake(f"{worker.name} works in the repository itself, without its own branch; use git diff")
    if not worker.base:
        raise Mistake(f"{worker.name} never had a checkout ({worker.state}), so it has no changes")


async def diff_worker(
    context: RepoContext, worker: WorkerState, work: CheckoutWork, is_stat: bool, in_checkout: bool
) -> str:
    """Return the diff between the worker's base and its branch or, if `in_checkout`, its checkout.

    `context` is one of the worker's repositories, and `work` is its work there. For a worker on another machine,
    its last push is fetched and compared. If `is_stat`, return only the number of changed lines in each file.
    """
    location, now, _ = await _find_current_commit(context, worker, in_checkout)
    if not is_stat:
        return await read_patch(location, work.base, now)
    return await read_git_output(location, "diff", "--stat", *DIFF_FORM, work.base, now, "--", timeout=LONGEST)


async def read_worker_diff(context: RepoContext, worker: WorkerState, *, in_checkout: bool) -> WorkerDiff:
    """Return the diff from the worker's base to its branch, or to its checkout if `in_checkout` is true."""
    location, now, is_committed = await _find_current_commit(context, worker, in_checkout)
    return WorkerDiff(
        text=await read_patch(location, worker.base, now),
        base=worker.base,
        commit=now,
        tree=await resolve_tree(location, now),
        is_committed=is_committed,
    )


async def _find_current_commit(
    context: RepoContext, worker: WorkerState, in_checkout: bool
) -> tuple[GitLocation, str, bool]:
    """Return the location and id of the worker's current commit, and whether it is the tip of the worker's branch."""
    if (pushed := await fetch_pushed_work(context, worker)) is not None:
        return context.repository, pushed.head if worker.is_over else pushed.commit, worker.is_over
    if not in_checkout:
        return context.repository, await branch_tip(context.repository, worker.worker_task.branch), True
    checkout = await context.worktrees.find_checkout(worker.worker_task.branch)
    return checkout, await take_snapshot(checkout), False
