"""Commit a worker's changes on its branch before its run ends, and record the commit on its timeline."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from anyio import CancelScope, to_thread

from ..core.timeline import Timeline
from ..files.settings import Settings
from ..store.worktree_ledger import Ledger
from ..system.file_lock import wait_file_lock
from ..values.errors import OutsideFailed, PodiumError
from ..values.event import KINDS, AlsoCommitted, Noticed, RunStarted, WorkCommitted, WorkerPlaced
from ..values.plain_text import escape_unprintable, truncate_text
from ..values.worker_task import WorkerTask
from ..workspace.git.branch import advance_branch
from ..workspace.git.repository import Checkout, Repository, call_git
from ..workspace.git.revision import resolve_tree
from ..workspace.git.snapshot import find_nested_repositories, read_person, write_commit, write_snapshot_tree
from ..workspace.git.stale_locks import remove_stale_locks
from ..workspace.sandbox.bubblewrap import PROTECTED_NAMES
from ..workspace.sandbox.mounts import Placeholders
from ..workspace.worktrees.worktree import Worktrees
from ..workspace.worktrees.worktree_status import read_worktree_status

COMMIT_LOCK = "podium-commit.lock"
TRIES = 10
"""The maximum number of attempts to commit in a checkout that other workers still use."""


async def commit_worker_changes(timeline: Timeline, started: RunStarted, settings: Settings, *, succeeded: bool) -> str:
    """Commit a worker's changes, if there are any. Return the reason if that failed, otherwise an empty string."""
    worker_task = started.errand
    assert worker_task is not None
    if not worker_task.has_checkout or not timeline.has_outcome(f"/{KINDS[WorkerPlaced]}#1"):
        return ""
    task = make_commit_subject(started.request.text, is_sent=bool(worker_task.parent))
    subject = task if succeeded else f"Unfinished: {task}"
    body = f"Podium-Agent: {escape_unprintable(started.agent)}\nPodium-Run: {timeline.run}"
    tries = TRIES if worker_task.is_shared else 1
    found: dict[str, tuple[Checkout, WorkCommit]] = {}
    failures: list[str] = []
    for one in worker_task.checkouts:
        try:
            of = Worktrees(repository=Repository.at(Path(one.root)), ledger=Ledger(settings.store))
            # Workers that share a checkout may finish at the same moment.
            async with of.ledger.hold_worktree_lock() if worker_task.is_shared else nullcontext():
                checkout = await of.find_checkout(worker_task.branch)
                found[one.root] = checkout, await _commit_with_retries(checkout, subject, body, tries=tries)
        except PodiumError as error:
            failures.append(f"its changes could not be committed and remain in {one.path}: {error}")
    if worker_task.root not in found:
        return "; ".join(failures)
    _record_commits(timeline, worker_task, {root: commit for root, (_, commit) in found.items()})
    for _, commit in found.values():
        if commit.problem:
            timeline.append(Noticed(text=f"the work is on its branch, but {commit.problem}"), scope="")
    for checkout, _ in found.values():
        await _tidy_checkout(timeline, checkout, settings)
    return "; ".join(failures)


def _record_commits(timeline: Timeline, worker_task: WorkerTask, commits: Mapping[str, WorkCommit]) -> None:
    """Record the commits in the worker's repositories, keyed by root, unless the same commits are already recorded."""
    own = commits[worker_task.root]
    also = tuple(
        AlsoCommitted(
            root=root, commit=one.commit, commits=one.commits, files=one.files, added=one.added, removed=one.removed
        )
        for root, one in commits.items()
        if root != worker_task.root
    )
    committed = WorkCommitted(
        branch=worker_task.branch,
        commit=own.commit,
        commits=own.commits,
        files=own.files,
        added=own.added,
        removed=own.removed,
        also=also,
    )
    before = timeline.find_events_below("", WorkCommitted)
    if committed not in before:
        timeline.append(committed, scope="", key=f"/{KINDS[WorkCommitted]}#{len(before) + 1}")


async def _tidy_checkout(timeline: Timeline, checkout: Checkout, settings: Settings) -> None:
    """Remove the placeholders that a killed worker left in a checkout, and record which nested repositories it has.

    A notice says that changes in nested repositories are not on the worker's branch.
    """
    with suppress(PodiumError, OSError):  # the work is already committed, so errors here do not matter
        # A worker that was killed during a command leaves placeholders behind.
        await to_thread.run_sync(Placeholders(checkout.path, PROTECTED_NAMES, home=settings.home).remove_stale)
        if nested := await find_nested_repositories(checkout):
            inside = ", ".join(nested)
            timeline.append(Noticed(text=f"{inside}: changes in a nested repository are not on the branch"), scope="")


async def _commit_with_retries(checkout: Checkout, subject: str, body: str, *, tries: int) -> WorkCommit:
    """Commit the changes in a checkout. Retry on failure, because git fails if a file changes at the same time."""
    for _ in range(tries - 1):
        with suppress(OutsideFailed):
            return await commit_work(checkout, subject=subject, body=body)
    return await commit_work(checkout, subject=subject, body=body)


def make_commit_subject(request: str, *, is_sent: bool) -> str:
    """Return the commit subject for a request. In a team's request, the worker's own task is under the last heading."""
    lines = [line for line in request.splitlines() if line.strip()]
    headings = [place for place, line in enumerate(lines) if line.startswith("#")]
    begin = headings[-1] + 1 if is_sent and headings else 0
    return next(iter(lines[begin:]), "").lstrip("# ")


LONGEST_SUBJECT = 72


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkCommit:
    """The changes on a worker's branch since its base; `commit` is the newest commit.

    `problem` says what failed after the branch had moved. The changes are on the branch nevertheless.
    """

    commit: str
    commits: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    added: int = 0
    removed: int = 0
    problem: str = ""


async def commit_work(checkout: Checkout, *, subject: str, body: str = "") -> WorkCommit:
    """Commit the uncommitted changes in the checkout. If there are none, make no commit."""
    # Git inherits the lock: if this worker is killed, the next one waits until git has ended, too.
    async with _lock_commits(checkout) as lock:
        await to_thread.run_sync(remove_stale_locks, checkout, checkout.branch)
        old, tree = await write_snapshot_tree(checkout)
        head, problem = old, ""
        # Shielded from cancellation: git leaves a lock behind if it is killed while writing.
        with CancelScope(shield=True):
            if tree != await resolve_tree(checkout, old):
                author = await read_person(checkout)
                message = _format_message(subject, body)
                head = await write_commit(checkout, tree, [old], message, author=author, lock=lock)
                await advance_branch(checkout, checkout.branch, old=old, new=head, tree=tree, lock=lock)
            # Update the index even if there is no new commit: after a crash it may still match the previous commit.
            updated = await call_git(checkout, "read-tree", head, lock=lock)
            if updated.code != 0:
                problem = f"the index of {checkout.path} could not be updated: {updated.err}"
    try:
        status = await read_worktree_status(checkout, main=checkout.base)
    except OutsideFailed as error:
        if head == checkout.base:
            raise
        return WorkCommit(commit=head, commits=(head,), problem=problem or str(error))
    return WorkCommit(
        commit=head,
        commits=tuple(one.id for one in status.commits),
        files=tuple(one.path for one in status.files),
        added=status.added,
        removed=status.removed,
        problem=problem,
    )


@asynccontextmanager
async def _lock_commits(checkout: Checkout) -> AsyncIterator[int]:
    """Let nobody else commit in the checkout until the block ends. Yield the lock's descriptor for git."""
    async with AsyncExitStack() as stack:
        try:
            lock = await stack.enter_async_context(wait_file_lock(checkout.git_dir / COMMIT_LOCK))
        except OSError as error:
            raise OutsideFailed(f"{checkout.git_dir} cannot be written: {error.strerror}") from error
        yield lock


def _format_message(subject: str, body: str) -> str:
    first = truncate_text(" ".join(escape_unprintable(subject).split()), LONGEST_SUBJECT) or "Changes by an agent"
    return f"{first}\n\n{body.strip()}\n" if body.strip() else f"{first}\n"
