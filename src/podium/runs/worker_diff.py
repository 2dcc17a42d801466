"""Return what a worker changed since its base."""

from __future__ import annotations

from ..values.errors import Mistake
from ..views.worker_state import WorkerState
from ..workspace.git.repository import GitLocation, read_git_output
from ..workspace.git.revision import branch_tip
from ..workspace.git.snapshot import take_snapshot
from .worker_lookup import RepoContext

DIFF_TIMEOUT_SECONDS = 300.0
# The repository's own settings could add colours or leave out the prefixes, and the diff is also read by a parser.
DIFF_FORM = ("--no-color", "--src-prefix=a/", "--dst-prefix=b/")


def require_own_branch(worker: WorkerState) -> None:
    """Raise Mistake if a worker does not work on a separate branch, or has had no checkout."""
    if worker.worker_task.is_reader:
        raise Mistake(f"{worker.name} is read-only and has no changes; podium workers output shows its answer")
    if worker.worker_task.is_here:
        raise Mistake(f"{worker.name} works in the repository itself, without its own branch; use git diff")
    if not worker.base:
        raise Mistake(f"{worker.name} has had no checkout ({worker.state}), so it has no changes")


async def diff_worker(context: RepoContext, worker: WorkerState, is_stat: bool, in_checkout: bool) -> str:
    """Return the diff between the worker's base and its branch or, with `in_checkout`, its checkout.

    With `is_stat`, return only the numbers of changed lines for each file.
    """
    location: GitLocation = context.repository
    if not in_checkout:
        now = await branch_tip(location, worker.worker_task.branch)
    else:
        location = await context.worktrees.find_checkout(worker.worker_task.branch)
        now = await take_snapshot(location)
    how = "--stat" if is_stat else "--patch"
    words = ("diff", how, *DIFF_FORM, worker.base, now, "--")
    return await read_git_output(location, *words, timeout=DIFF_TIMEOUT_SECONDS)
