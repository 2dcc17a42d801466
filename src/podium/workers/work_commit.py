"""A worker's return: what it changed is on its branch, and its timeline says so, before its run ends."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from pathlib import Path

from anyio import to_thread

from ..core.timeline import Timeline
from ..setup.settings import Settings
from ..store.sqlite.worktree_ledger import Ledger
from ..values.errors import OutsideFailed, PodiumError
from ..values.event import KINDS, Noticed, RunStarted, WorkCommitted, WorkerPlaced
from ..workspace.git.repository import Checkout, Repository
from ..workspace.git.snapshot import find_nested_repositories
from ..workspace.sandbox.bubblewrap import PROTECTED_NAMES
from ..workspace.sandbox.placeholders import Placeholders
from ..workspace.worktrees.changes_commit import WorkCommit, commit_work
from ..workspace.worktrees.worktree import Worktrees

TRIES = 10
"""How often work is brought home from a checkout in which others go on working, before that has failed."""


async def commit_worker_changes(timeline: Timeline, started: RunStarted, settings: Settings, *, succeeded: bool) -> str:
    """Bring a worker's changes home; why that could not be done, and nothing where it was, or there are none."""
    worker_task = started.errand
    assert worker_task is not None
    if not worker_task.has_checkout or not timeline.has_outcome(f"/{KINDS[WorkerPlaced]}#1"):
        return ""
    try:
        of = Worktrees(repository=Repository.at(Path(worker_task.root)), ledger=Ledger(settings.store))
        # Those that share a checkout may come home at the same moment.
        async with of.ledger.hold_worktree_lock() if worker_task.is_shared else nullcontext():
            checkout = await of.find_checkout(worker_task.branch)
            task = make_commit_subject(started.request.text, is_sent=bool(worker_task.parent))
            subject = task if succeeded else f"Unfinished: {task}"
            brought = await _commit_with_retries(checkout, subject, tries=TRIES if worker_task.is_shared else 1)
    except PodiumError as error:
        return f"its work stays uncommitted in {worker_task.path}: {error}"
    committed = WorkCommitted(
        branch=worker_task.branch,
        commit=brought.commit,
        commits=brought.commits,
        files=brought.files,
        added=brought.added,
        removed=brought.removed,
    )
    before = timeline.find_events_below("", WorkCommitted)
    if committed not in before:
        timeline.append(committed, scope="", key=f"/{KINDS[WorkCommitted]}#{len(before) + 1}")
    with suppress(PodiumError, OSError):  # the work is home, whatever becomes of the rest
        # One that was killed in the middle of a command has left them there.
        await to_thread.run_sync(Placeholders(checkout.path, PROTECTED_NAMES, home=settings.home).remove_stale)
        if nested := await find_nested_repositories(checkout):
            inside = ", ".join(nested)
            timeline.append(Noticed(text=f"{inside}: a repository of its own, whose work is on no branch"), scope="")
    return ""


async def _commit_with_retries(checkout: Checkout, subject: str, *, tries: int) -> WorkCommit:
    """Bring home what a checkout holds. At a file that another writes to just then git fails, and not the next time."""
    for _ in range(tries - 1):
        with suppress(OutsideFailed):
            return await commit_work(checkout, subject=subject)
    return await commit_work(checkout, subject=subject)


def make_commit_subject(request: str, *, is_sent: bool) -> str:
    """What a request is about, in a line. One that a team sent has its own task last, under a heading."""
    lines = [line for line in request.splitlines() if line.strip()]
    headings = [place for place, line in enumerate(lines) if line.startswith("#")]
    begin = headings[-1] + 1 if is_sent and headings else 0
    return next(iter(lines[begin:]), "").lstrip("# ")
