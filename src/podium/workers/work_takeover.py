"""Continue a worker's run on this machine with the files that another machine pushed.

The worker's agent is told which work was not pushed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from anyio import to_thread

from ..core.timeline import Timeline
from ..runs.runs import Runs
from ..store.worktree_ledger import Ledger
from ..system.identity import read_host_id
from ..system.owned_files import remove_folder
from ..values.errors import Mistake
from ..values.event import Entry, MessageReceived, Noticed, RunEnded, WorkCommitted, WorkMoved
from ..values.worker_task import RepositoryOrigin, WorkerTask
from ..views.travelled_work import TravelledWork, derive_travelled_work, describe_move
from ..workspace.git.branch import HEADS
from ..workspace.git.repository import Checkout, Repository, read_git_output
from ..workspace.travel.repository_cache import Mirror, RepositoryCache, restore_checkpoint
from ..workspace.travel.run_location import import_run, open_run_clone
from ..workspace.worktrees.worktree import WorktreeHook, Worktrees


async def fetch_code(runs: Runs, run: str, worker_task: WorkerTask) -> TravelledWork | None:
    """Make sure that a run's repository is on this machine, with the commits that the run needs.

    `worker_task` contains the paths on this machine. If the run was on another machine earlier, return the location and
    the last push of its files; otherwise return None. Raise Mistake if the repository cannot be used here, and
    OutsideFailed if the remote does not provide the commits.
    """
    origin, home = worker_task.origin, runs.settings.home
    assert origin is not None
    host = read_host_id(home)
    if why := origin.explain_pinned(host):
        raise Mistake(why)
    work = derive_travelled_work(await runs.read_entries(run))
    is_here = (work.host, work.path) == (host, worker_task.path)
    if not origin.remote or is_here or (host == origin.host and not work.host and not worker_task.after):
        return None
    mirror = RepositoryCache(home=home).open_mirror(origin.remote)
    commits = await _list_needed_commits(runs, worker_task, work)
    chain = (run, *worker_task.after)
    await mirror.fetch_runs(chain, commits)
    await _bring_commits(mirror, origin, worker_task, chain, commits, is_own_machine=host == origin.host)
    return work if work.host else None


async def _list_needed_commits(runs: Runs, worker_task: WorkerTask, work: TravelledWork) -> list[str]:
    """Return the commits in the last push or, if nothing was pushed, the commits that the work starts from."""
    if work.pushed is not None:
        return [work.pushed.head, work.pushed.commit]
    commits = [worker_task.base] if worker_task.base else []
    for run in worker_task.after:
        events = [entry.event for entry in await runs.read_entries(run)]
        commits += [event.commit for event in reversed(events) if isinstance(event, WorkCommitted)][:1]
    return commits


async def _bring_commits(
    mirror: Mirror,
    origin: RepositoryOrigin,
    worker_task: WorkerTask,
    runs: Sequence[str],
    commits: Sequence[str],
    *,
    is_own_machine: bool,
) -> None:
    if is_own_machine:
        for run in runs:
            await import_run(mirror, Repository.at(Path(worker_task.root)), run)
        return
    if not commits:
        raise Mistake(f"cannot clone {origin.remote} for this run, because the base commit of the run is not known")
    await open_run_clone(mirror, runs[0], commits[0])


async def restore_checkout(
    worktrees: Worktrees,
    run: str,
    worker_task: WorkerTask,
    work: TravelledWork,
    base: str | None,
    setup: WorktreeHook | None,
) -> Checkout:
    """Create a worker's checkout with the last pushed files, or with the files in `base` if nothing was pushed.

    If the run already has a checkout on this machine, its unsaved work is saved and the checkout is removed first.
    """
    repository, branch, pushed = worktrees.repository, worker_task.branch, work.pushed
    earlier = await worktrees.ledger.list_worktrees(repository.common_dir)
    if any(one.branch == branch and one.run == run for one in earlier):
        await worktrees.remove(branch, force=True)
    if pushed is not None:
        await read_git_output(repository, "update-ref", f"{HEADS}{branch}", pushed.head)

    async def restore_then_set_up(checkout: Checkout) -> None:
        if pushed is not None:
            await restore_checkpoint(checkout, pushed.commit)
        if setup is not None:
            await setup(checkout)

    return await worktrees.create(branch, base=base, at=Path(worker_task.path), run=run, setup=restore_then_set_up)


async def remove_pushed_clone(runs: Runs, run: str, worker_task: WorkerTask) -> None:
    """Remove a run's repository and checkout from the Podium home, if the run has ended and all its work is pushed."""
    origin, home = worker_task.origin, runs.settings.home
    if origin is None or not origin.remote or origin.host == read_host_id(home):
        return
    entries = await runs.read_entries(run)
    pushed = derive_travelled_work(entries).pushed
    committed = [entry.event.commit for entry in entries if isinstance(entry.event, WorkCommitted)]
    if not isinstance(entries[-1].event, RunEnded) or pushed is None or committed[-1:] != [pushed.head]:
        return
    worktrees = Worktrees(repository=Repository.at(Path(worker_task.root)), ledger=Ledger(runs.settings.store))
    await worktrees.remove(worker_task.branch, force=True)
    await to_thread.run_sync(remove_folder, Path(worker_task.root).parent)


def record_move(
    timeline: Timeline, entries: Sequence[Entry], agent: str, worker_task: WorkerTask, *, host: str
) -> None:
    """Record that a run has moved here, if it was on another machine, and tell `agent` what was not pushed.

    `entries` is the timeline before this machine's checkout was recorded. If the run cannot move, record why.
    """
    work, origin = derive_travelled_work(entries), worker_task.origin
    assert origin is not None
    if not work.host and not origin.remote:
        timeline.append(Noticed(text=origin.describe_pinned()), scope="")
    if not work.host or (work.host, work.path) == (host, worker_task.path):
        return
    moved = WorkMoved(
        host=host,
        path=worker_task.path,
        commit="" if work.pushed is None else work.pushed.commit,
        unpushed=work.unpushed,
        ignored=() if work.pushed is None else work.pushed.ignored,
    )
    timeline.append(moved, scope="")
    message = MessageReceived(id=f"moved-{timeline.epoch}", to=agent, text=describe_move(moved), by="Podium")
    timeline.append(message, scope="")
