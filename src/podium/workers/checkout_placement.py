"""Choose the branch and the paths of a new worker's checkouts before any is created, and record where its code is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

from anyio import to_thread
from msgspec import structs

from ..files.settings import Settings, merge_restrictions
from ..store.reader import RunSummary, StoreReader
from ..store.worker_index import WorkerIndex
from ..store.worktree_ledger import Ledger
from ..system.identity import read_host_id
from ..values.errors import Mistake, OutsideFailed, StoreCorrupt
from ..values.store_address import StoreAddress
from ..values.worker_task import RepositoryOrigin, RunCheckout, WorkerTask, list_folders
from ..workspace.git.branch import list_branches, must_not_overlap_branches
from ..workspace.git.repository import Repository, read_git_output
from ..workspace.git.revision import SHORT, must_contain_commits
from ..workspace.git.snapshot import resolve_commit
from ..workspace.travel.remote_url import Remote, find_remote
from ..workspace.travel.repository_cache import RepositoryCache, run_ref
from ..workspace.worktrees.worktree import Worktrees
from ..workspace.worktrees.worktree_folder import DEFAULT_FOLDER_PATTERN


async def place_checkouts(
    worker_index: WorkerIndex, repository: Repository, worker_task: WorkerTask, folders: Sequence[str], own: Settings
) -> tuple[WorkerTask, Settings]:
    """Return the task with its checkouts, of `repository` and of the repository of each of `folders`, and its settings.

    `own` contains the settings for `repository`; the returned settings also contain the restrictions of the others.
    Raise Mistake if a folder cannot be used, or if a checkout cannot be created.
    """
    if folders and worker_task.is_shared:
        raise Mistake("a worker without its own checkout cannot work in several repositories; remove --also")
    checkouts = [await _place_checkout(worker_index, repository, worker_task, own, [])]
    repositories = [repository]
    for folder in folders:
        other = await to_thread.run_sync(_open_other_repository, folder, repositories)
        settings = Settings.load(repo=other.main_folder, store=own.store, home=own.home)
        try:
            placed = await _place_checkout(
                worker_index, other, structs.replace(worker_task, base=""), settings, checkouts
            )
        except Mistake as error:
            raise Mistake(f"no worktree can be created in {other.main_folder}: {error}") from error
        _must_be_separate(Path(placed.path), list_folders(checkouts))
        checkouts.append(structs.replace(placed, checks=settings.checks))
        repositories.append(other)
        own = structs.replace(
            own,
            narrowing=merge_restrictions(own.narrowing, settings.narrowing),
            notices=tuple(dict.fromkeys((*own.notices, *settings.notices))),
        )
    return worker_task.with_checkouts(*checkouts), own


async def _place_checkout(
    worker_index: WorkerIndex,
    repository: Repository,
    worker_task: WorkerTask,
    settings: Settings,
    others: Sequence[RunCheckout],
) -> RunCheckout:
    """Choose the path and the base commit of a checkout of a repository. Raise Mistake if it cannot be created.

    `others` are the worker's other checkouts.
    """
    base, store = worker_task.base, settings.store
    worktrees = Worktrees(
        repository=repository,
        ledger=Ledger(store),
        folder=settings.worktrees.folder or DEFAULT_FOLDER_PATTERN,
        quota=settings.worktrees.quota,
    )
    path = await _choose_checkout_path(
        store,
        worker_index,
        worktrees,
        worker_task.branch,
        base,
        is_shared=worker_task.is_shared,
        reserved=[Path(one.path) for one in others],
    )
    if base or not worker_task.after:
        # Resolve the base now: `HEAD` refers to the checkout that the task is delegated from.
        base = await resolve_commit(repository, base or "HEAD")
    return RunCheckout(root=str(repository.main_folder), path=str(path), base=base)


def _open_other_repository(folder: str, known: Sequence[Repository]) -> Repository:
    """Return the repository of a folder.

    Raise Mistake if there is none, or if it is one of the `known` repositories, contains one of them or is inside one.
    """
    if not Path(folder).is_dir():
        raise Mistake(f"{folder} is not a folder; --also needs a folder of another git repository")
    found = Repository.at(Path(folder))
    main = found.main_folder
    if found.common_dir == known[0].common_dir:
        raise Mistake(f"{folder} is in the task's own repository; --also needs a folder of another repository")
    for other in known:
        if found.common_dir == other.common_dir:
            raise Mistake(f"{main} was given more than once; use --also only once for each repository")
        if main.is_relative_to(other.main_folder) or other.main_folder.is_relative_to(main):
            inner, outer = sorted((main, other.main_folder), key=lambda path: len(path.parts), reverse=True)
            raise Mistake(f"{inner} is inside {outer}; the repositories of a task cannot be nested")
    return found


def _must_be_separate(path: Path, others: Sequence[str]) -> None:
    """Raise Mistake if a checkout would be in one of these folders, or would contain one."""
    for other in others:
        if path.is_relative_to(other) or Path(other).is_relative_to(path):
            raise Mistake(f"the checkout {path} and {other} would be nested; change worktrees.folder")


async def _choose_checkout_path(
    store: StoreAddress,
    worker_index: WorkerIndex,
    of: Worktrees,
    branch: str,
    base: str,
    *,
    is_shared: bool,
    reserved: Sequence[Path],
) -> Path:
    """Return the path for a worker's checkout. Raise Mistake if the checkout cannot be created.

    If `is_shared`, the workers on a branch share one checkout.
    """
    root = str(of.repository.main_folder)
    if is_shared:
        if (shared := await to_thread.run_sync(_find_shared_checkout, store, worker_index, root, branch)) is not None:
            return shared
    elif await to_thread.run_sync(_is_branch_taken, store, worker_index, root, branch):
        raise Mistake(f"branch {branch!r} already has a worker (see podium workers); use another branch")
    others = await to_thread.run_sync(_list_other_tasks, store, worker_index, root, branch)
    if any(root in other.roots and other.branch == branch for other in others):
        raise Mistake(
            f"branch {branch!r} is used by a worker that was started in another repository; use another branch"
        )
    taken = [*reserved, *(Path(one.path) for other in others for one in other.checkouts)]
    path = await of.must_be_creatable(branch, base=base or None, reserved=taken)
    if base:
        await must_contain_commits(of.repository, branch, {base: await resolve_commit(of.repository, base)})
    must_not_overlap_branches(branch, [other.branch for other in others if root in other.roots])
    return path


def _find_shared_checkout(store: StoreAddress, worker_index: WorkerIndex, root: str, branch: str) -> Path | None:
    """Return the path of the checkout that workers on a branch share, or None. The checkout may not exist yet."""
    with StoreReader(store) as reader:
        worker_tasks = [reader.read_summary(row.run).started.errand for row in worker_index.find_by_name(root, branch)]
    return next(
        (Path(worker_task.path) for worker_task in worker_tasks if worker_task is not None and worker_task.is_shared),
        None,
    )


def _is_branch_taken(store: StoreAddress, worker_index: WorkerIndex, root: str, branch: str) -> bool:
    """Return whether a branch belongs to a worker that has not ended. The worker may not have started yet."""
    with StoreReader(store) as reader:
        return any(
            _is_on_branch(reader.read_summary(row.run))
            for row in worker_index.find_by_name(root, branch)
            if row.is_open
        )


def _is_on_branch(summary: RunSummary) -> bool:
    """Return whether a run is unfinished and has its own branch and checkout."""
    worker_task = summary.started.errand
    return worker_task is not None and worker_task.has_checkout and not summary.is_over


def _list_other_tasks(store: StoreAddress, worker_index: WorkerIndex, root: str, branch: str) -> list[WorkerTask]:
    """Return the tasks of unfinished workers that can write, except those on `branch` in the repository `root`."""
    found: list[WorkerTask] = []
    with StoreReader(store) as reader:
        for row in worker_index.list_open():
            # A run that cannot be read must not block the others.
            with suppress(StoreCorrupt):
                summary = reader.read_summary(row.run)
                worker_task = summary.started.errand
                if worker_task is None or worker_task.is_reader or summary.is_over:
                    continue
                if (worker_task.root, worker_task.branch) != (root, branch):
                    found.append(worker_task)
    return found


async def make_origin(repository: Repository, run: str, base: str, home: Path) -> RepositoryOrigin:
    """Return the origin of a run that may move between machines. Push its base if no remote branch contains it.

    Raise Mistake if the repository's remote cannot be used, or if the base cannot be pushed.
    """
    remote = await find_remote(repository)
    if remote is not None and base and not await _is_on_remote_branch(repository, remote, base):
        await _push_base(repository, remote, run, base, home)
    return RepositoryOrigin(
        path=str(repository.main_folder),
        host=read_host_id(home),
        remote="" if remote is None else remote.url.text,
        base=base,
    )


async def _is_on_remote_branch(repository: Repository, remote: Remote, base: str) -> bool:
    """Return whether a branch on the remote contains a commit, as far as the repository knows."""
    branches = f"refs/remotes/{remote.name}/"
    asked = ("for-each-ref", "--count=1", "--format=%(refname)", f"--contains={base}", branches)
    return bool(await read_git_output(repository, *asked))


async def _push_base(repository: Repository, remote: Remote, run: str, base: str, home: Path) -> None:
    mirror = RepositoryCache(home=home).open_mirror(remote.url)
    try:
        await mirror.push(repository.common_dir / "objects", base, run_ref(run, "base"))
    except OutsideFailed as error:
        raise Mistake(
            f"the work starts at commit {base[:SHORT]}, which is not on any branch of {remote.name} and could not be "
            f"pushed: {error}; push a branch that contains it, and delegate again"
        ) from error


async def choose_branch_name(repository: Repository, worker_index: WorkerIndex, branch: str, suffix: str) -> str:
    """Return `branch` with the suffix, and with a number if an existing branch or worker has that name.

    A branch that already has the suffix gets the next number.
    """
    stem = re.sub(rf"{suffix}(-\d+)?$", "", branch) + suffix
    there = set(await list_branches(repository))
    root = str(repository.main_folder)

    def find_free_name() -> str:
        names = (stem if number == 1 else f"{stem}-{number}" for number in count(1))
        return next(name for name in names if name not in there and not worker_index.find_by_name(root, name))

    return await to_thread.run_sync(find_free_name)
