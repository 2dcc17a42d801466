"""Create a worker's checkouts, from its base or from the merged work of preceding workers, and record their size."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from anyio import CancelScope, to_thread

from ..files.settings import Settings
from ..runs.assembly.worktree_setup import make_worktree_hook
from ..runs.runs import Runs
from ..store.worktree_ledger import Ledger
from ..values.errors import Mistake, PodiumError
from ..values.event import WorkCommitted, WorkerPlaced
from ..values.store_address import StoreAddress
from ..values.worker_task import WorkerTask
from ..views.worker_state import list_checkout_work
from ..workspace.git.repository import Checkout, Repository, call_git
from ..workspace.git.revision import HEADS, branch_tips, contains_commit, must_contain_commits
from ..workspace.git.snapshot import resolve_commit, write_commit
from ..workspace.merging.trial_merge import ConflictingMerge, MergeSide, try_merge
from ..workspace.worktrees.disk_quota import measure_worktrees
from ..workspace.worktrees.worktree import WorktreeHook, Worktrees, checkout_from_record
from ..workspace.worktrees.worktree_slots import share_slot
from .work_takeover import fetch_code, restore_checkout


async def ensure_checkouts(
    runs: Runs, environ: Mapping[str, str], run: str, worker_task: WorkerTask
) -> tuple[Checkout, ...]:
    """Return a worker's checkouts, created if necessary, all with the slot of the first one.

    `worker_task` contains the paths on this machine. If a checkout cannot be created, remove those before it, unless
    the worker has worked in them, and raise Mistake, or OutsideFailed if the remote does not provide its commits.
    """
    found: list[Checkout] = []
    if not worker_task.has_checkout:
        return ()
    take_slot = partial(_take_slot, runs.settings.home, worker_task)
    try:
        for one in worker_task.checkouts:
            part = worker_task.with_checkouts(one)
            found.append(await _ensure_checkout(runs, environ, run, part, before_setup=take_slot))
            await take_slot(found[-1])
    except BaseException:
        # If the cleanup fails too, only the original error is raised.
        with CancelScope(shield=True), suppress(PodiumError):
            if found and not any(isinstance(entry.event, WorkerPlaced) for entry in await runs.read_entries(run)):
                await _remove_checkouts(runs.settings.store, run, worker_task)
        raise
    return tuple(found)


async def _take_slot(home: Path, worker_task: WorkerTask, checkout: Checkout) -> None:
    await to_thread.run_sync(share_slot, home, checkout.path, Path(worker_task.path), Path(worker_task.root))


async def _remove_checkouts(store: StoreAddress, run: str, worker_task: WorkerTask) -> None:
    """Remove a worker's unused checkouts, and the branches that were created for them."""
    ledger = Ledger(store)
    for one in worker_task.checkouts:
        repository = Repository.at(Path(one.root))
        of = Worktrees(repository=repository, ledger=ledger)
        for noted in await ledger.list_worktrees(repository.common_dir):
            if noted.run == run and noted.branch == worker_task.branch and noted.state == "ready":
                await of.remove(noted.branch, force=True)
                if noted.is_new_branch:
                    # Git deletes the branch only if it is still at this commit.
                    await call_git(repository, "update-ref", "-d", f"{HEADS}{noted.branch}", noted.base)


async def _ensure_checkout(
    runs: Runs,
    environ: Mapping[str, str],
    run: str,
    worker_task: WorkerTask,
    *,
    before_setup: WorktreeHook,
) -> Checkout:
    travelled = None if worker_task.origin is None else await fetch_code(runs, run, worker_task)
    repository = Repository.at(Path(worker_task.root))
    ledger = Ledger(runs.settings.store)
    settings = Settings.load(environ, repo=Path(worker_task.root))
    of = Worktrees(repository=repository, ledger=ledger, quota=settings.worktrees.quota)
    await of.reconcile()
    setup = make_worktree_hook(
        settings.worktrees.setup,
        what="setup",
        home=settings.home,
        store=runs.settings.store,
        is_sandboxed=settings.sandbox,
        hosts=settings.network,
        before=before_setup,
    )
    # A shared checkout belongs to the team's run and is in use while that run is active.
    owner = worker_task.parent if worker_task.is_shared else run
    if travelled is not None:
        # If nothing was pushed, the merge of the preceding workers' commits is lost and must be repeated.
        is_lost = travelled.pushed is None and bool(worker_task.after)
        base = await _resolve_base_commit(runs, repository, worker_task) if is_lost else travelled.base
        return await restore_checkout(of, run, worker_task, travelled, base, setup)
    for noted in await ledger.list_worktrees(repository.common_dir):
        if noted.branch == worker_task.branch and noted.run == owner:
            checkout = checkout_from_record(noted)
            # If the worker has not started yet, a commander that died may have left the checkout only partly set up.
            is_whole = worker_task.is_shared or any(
                isinstance(one.event, WorkerPlaced) for one in await runs.read_entries(run)
            )
            if setup is not None and not is_whole:
                await setup(checkout)
            return checkout
    base = await _resolve_base_commit(runs, repository, worker_task)
    # Use the path chosen at delegation, which is on the timeline, even if the settings have changed since.
    return await of.create(worker_task.branch, base=base, at=Path(worker_task.path), run=owner, setup=setup)


async def record_checkout_size(store: StoreAddress, checkout: Checkout) -> None:
    """Record the disk usage of a worker's checkout after the worker has finished."""
    ledger = Ledger(store)
    # Errors do not affect the worker: the quota check measures again before it rejects a new checkout.
    with suppress(PodiumError):
        noted = [one for one in await ledger.list_worktrees(checkout.common_dir) if one.path == checkout.path]
        await measure_worktrees(ledger, noted)


async def _resolve_base_commit(runs: Runs, repository: Repository, worker_task: WorkerTask) -> str | None:
    """Return the starting commit of a branch: its base, merged with the work of preceding workers.

    Return None if there is neither. Raise Mistake if the work of these workers cannot be merged.
    """
    sides = [
        side
        for side in [await _find_worker_side(runs, repository, worker_task.root, run) for run in worker_task.after]
        if side is not None
    ]
    if not sides:
        return worker_task.base or None
    if worker_task.base:
        sides.insert(0, MergeSide(name=worker_task.base, commit=await resolve_commit(repository, worker_task.base)))
    await must_contain_commits(repository, worker_task.branch, {side.name: side.commit for side in sides})
    whole = sides[0]
    for side in sides[1:]:
        whole = MergeSide(name=whole.name, commit=await _merge_sides(repository, whole, side))
    return whole.commit


async def _merge_sides(repository: Repository, whole: MergeSide, side: MergeSide) -> str:
    if await contains_commit(repository, whole.commit, side.commit):
        return whole.commit
    if await contains_commit(repository, side.commit, whole.commit):
        return side.commit
    tried = await try_merge(repository, whole, side)
    if isinstance(tried, ConflictingMerge):
        clash = f"{side.name} and {whole.name} conflict in {', '.join(tried.files)}"
        raise Mistake(f"the branches that this worker waits for cannot be merged: {clash}")
    subject = f"Merge {side.name} into {whole.name}"
    return await write_commit(repository, tried.tree, [whole.commit, side.commit], subject)


async def _find_worker_side(runs: Runs, repository: Repository, root: str, run: str) -> MergeSide | None:
    """Return a worker's last commit in a repository, or the tip of its branch if that is later.

    Return None if the worker has no branch there.
    """
    entries = await runs.read_entries(run)
    started = entries[0].started
    if started.errand is None or not started.errand.has_checkout or root not in started.errand.roots:
        return None
    branch = started.errand.branch
    now = (await branch_tips(repository, [branch])).get(branch, "")
    committed = next((one.event for one in reversed(entries) if isinstance(one.event, WorkCommitted)), None)
    works = () if committed is None else list_checkout_work(started.errand, None, committed)
    left = next((one.commit for one in works if one.root == root), "") or now
    if not left:
        raise Mistake(f"{branch}, which this worker waits for, no longer exists, and its last commit is not known")
    return MergeSide(name=branch, commit=now if now and await contains_commit(repository, now, left) else left)
