"""Fetch work from workers on other machines, and delete the refs on the remote that are no longer needed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from anyio import to_thread

from ...store.reader import StoreReader
from ...store.run_creators import find_foreign_creator
from ...system.identity import read_host_id
from ...values.errors import Mistake, PodiumError
from ...values.event import KINDS, PushFailed, WorkerPlaced, WorkMoved, WorkPushed
from ...views.travelled_work import TravelledWork, derive_travelled_work
from ...views.worker_state import WorkerState
from ...workspace.git.repository import Repository, call_git
from ...workspace.git.revision import SHORT, branch_tips, contains_commit
from ...workspace.git.snapshot import resolve_commit
from ...workspace.travel.repository_cache import Mirror, RepositoryCache, delete_local_refs
from ...workspace.travel.run_location import import_branch, import_run
from ..queries.worker_lookup import RepoContext

TRAVEL_KINDS = tuple(KINDS[kind] for kind in (WorkerPlaced, WorkMoved, WorkPushed, PushFailed))


@dataclass(frozen=True, slots=True, kw_only=True)
class RefCleanup:
    """The action that cleanup took for a worker's refs on a remote, and the reason."""

    branch: str
    remote: str
    act: Literal["removed", "kept"]
    why: str


async def find_other_machine(context: RepoContext, worker: WorkerState) -> TravelledWork | None:
    """Return the location and last push of a worker's files if they are on another machine; otherwise return None."""
    if worker.worker_task.origin is None or not worker.worker_task.origin.remote:
        return None
    work = await to_thread.run_sync(_read_travelled_work, context, worker.run)
    return work if work.host not in ("", read_host_id(context.settings.home)) else None


def _read_travelled_work(context: RepoContext, run: str) -> TravelledWork:
    with StoreReader(context.store) as reader:
        return derive_travelled_work(reader.read_entries(run, kinds=TRAVEL_KINDS))


async def fetch_pushed_work(context: RepoContext, worker: WorkerState) -> WorkPushed | None:
    """Fetch the most recent push of a worker on another machine, and return the event that recorded the push.

    Return None if the worker's files are on this machine. Raise Mistake if the worker's last commits were not pushed,
    and OutsideFailed if the remote cannot be reached.
    """
    work = await find_other_machine(context, worker)
    if work is None:
        return None
    pushed = work.pushed
    if pushed is None or (worker.commit and pushed.head != worker.commit):
        what = "its last commits" if pushed is not None else "its files"
        why = f": {work.push_failure}" if work.push_failure else ""
        raise Mistake(f"{worker.name}: {what} are only on {work.host}, in {work.path}, and were not pushed{why}")
    if not await _has_commit(context.repository, pushed.commit):
        mirror = _open_mirror(context, worker)
        await mirror.fetch_runs([worker.run], [pushed.commit])
        await import_run(mirror, context.repository, worker.run)
    return pushed


async def fetch_branch(context: RepoContext, worker: WorkerState, *, notice: Callable[[str], object]) -> None:
    """Bring the branch of a worker on another machine up to date with its last push.

    A checkout that the worker left on this machine is removed, and `notice` is called with a message that says where
    its work is saved. Raise Mistake if the branch here has other commits.
    """
    if (pushed := await fetch_pushed_work(context, worker)) is None:
        return
    branch, worktrees = worker.worker_task.branch, context.worktrees
    left = await worktrees.ledger.list_worktrees(context.repository.common_dir)
    if any(one.branch == branch and one.run == worker.run for one in left):
        notice(f"{branch}: its worker has moved to another machine; {await worktrees.remove(branch, force=True)}")
    creator = await to_thread.run_sync(find_foreign_creator, context.store, worker.run)
    await import_branch(context.repository, branch, pushed.head, is_chosen=creator is None)


async def fetch_branches(
    context: RepoContext, workers: Iterable[WorkerState], *, notice: Callable[[str], object]
) -> None:
    """Bring the branches of workers on other machines up to date. `notice` is called with the reason for a failure."""
    for worker in workers:
        try:
            await fetch_branch(context, worker, notice=notice)
        except PodiumError as error:
            notice(str(error))


async def remove_finished_refs(
    context: RepoContext,
    *,
    branches: Collection[str] | None = None,
    target: str = "HEAD",
    force: bool = False,
    dry_run: bool = False,
) -> list[RefCleanup]:
    """Delete the remote refs of ended workers whose work is in `target`, and return the result for each worker.

    With `branches`, only the workers on these branches are checked. With `force`, the refs of unmerged work are also
    deleted, provided that the worker's branch is in this repository. With `dry_run`, nothing is deleted.
    """
    workers = await to_thread.run_sync(context.load_workers)
    ended = [one for one in workers if one.is_over and _has_remote(one) and (branches is None or one.name in branches)]
    found: list[RefCleanup] = []
    for worker in ended:
        assert worker.worker_task.origin is not None
        say = partial(RefCleanup, branch=worker.name, remote=worker.worker_task.origin.remote)
        try:
            why = await _find_reason_to_delete(context, worker, target, force=force)
            if not why:
                found.append(say(act="kept", why="the worker's work is not merged"))
            elif dry_run or await _delete_refs(context, worker):
                found.append(say(act="removed", why=why))
        except PodiumError as error:
            found.append(say(act="kept", why=str(error)))
    return found


async def _delete_refs(context: RepoContext, worker: WorkerState) -> bool:
    """Delete a worker's refs on the remote, and the fetched copies. Return whether the remote had any."""
    count = await _open_mirror(context, worker).delete_runs([worker.run])
    await delete_local_refs(context.repository, worker.run)
    return count > 0


def _has_remote(worker: WorkerState) -> bool:
    return worker.worker_task.origin is not None and bool(worker.worker_task.origin.remote)


def _open_mirror(context: RepoContext, worker: WorkerState) -> Mirror:
    assert worker.worker_task.origin is not None
    return RepositoryCache(home=context.settings.home).open_mirror(worker.worker_task.origin.remote)


async def _find_reason_to_delete(context: RepoContext, worker: WorkerState, target: str, *, force: bool) -> str:
    """Return why a worker's refs are no longer needed, or an empty string if they are still needed."""
    repository, commit = context.repository, worker.commit
    if not commit or commit == worker.base:
        return "the worker changed nothing"
    if await _has_commit(repository, commit) and await contains_commit(
        repository, await resolve_commit(repository, target), commit
    ):
        return "the worker's work is merged"
    if not force:
        return ""
    await fetch_branch(context, worker, notice=str)
    tip = (await branch_tips(repository, [worker.worker_task.branch])).get(worker.worker_task.branch, "")
    return f"deletion was forced; the worker's branch is in this repository, at {tip[:SHORT]}" if tip else ""


async def _has_commit(repository: Repository, commit: str) -> bool:
    return (await call_git(repository, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")).code == 0
