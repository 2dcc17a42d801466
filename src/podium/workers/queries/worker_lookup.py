"""Look up the workers in a repository, their states, and the status of their worktrees."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from ...files.settings import Settings
from ...runs import find
from ...runs.assembly.worktree_setup import make_worktree_hook
from ...store.reader import StoreReader
from ...store.worker_index import WorkerIndex
from ...store.worktree_ledger import Ledger
from ...system.locations import find_repo
from ...values.errors import NoSuchRun, PodiumError, StoreCorrupt
from ...values.store_address import StoreAddress
from ...views.worker_state import CheckoutWork, WorkerRunState, WorkerState, build_worker_state
from ...workspace.git.repository import Repository
from ...workspace.worktrees.worktree import Worktrees
from ...workspace.worktrees.worktree_folder import DEFAULT_FOLDER_PATTERN
from ...workspace.worktrees.worktree_status import WorktreeStatus


def open_worktrees(repository: Repository, settings: Settings | None = None) -> Worktrees:
    """Return the worktrees of a repository, with the teardown hook from the settings."""
    settings = settings or Settings.load(repo=repository.main_folder)
    teardown = make_worktree_hook(
        settings.worktrees.teardown,
        what="teardown",
        home=settings.home,
        store=settings.store,
        is_sandboxed=settings.sandbox,
        hosts=settings.network,
    )
    return Worktrees(
        repository=repository,
        ledger=Ledger(settings.store),
        folder=settings.worktrees.folder or DEFAULT_FOLDER_PATTERN,
        quota=settings.worktrees.quota,
        teardown=teardown,
    )


@dataclass(frozen=True)
class RepoContext:
    """The repository that a command applies to. Everything is loaded on first use."""

    repo_path: Path | None = None
    base_settings: Settings | None = None
    """The settings whose store and home folder are used; by default those from the environment."""

    @cached_property
    def folder(self) -> Path:
        return find_repo(self.repo_path or Path())

    @cached_property
    def settings(self) -> Settings:
        if (base := self.base_settings) is not None:
            return Settings.load(repo=self.folder, store=base.store, home=base.home)
        return Settings.load(repo=self.folder)

    @property
    def store(self) -> StoreAddress:
        return self.settings.store

    @cached_property
    def repository(self) -> Repository:
        return Repository.at(self.folder)

    @property
    def root(self) -> str:
        """The repository's path as recorded in workers' tasks."""
        return str(self.repository.main_folder)

    @property
    def worktrees(self) -> Worktrees:
        return open_worktrees(self.repository, None if self.base_settings is None else self.settings)

    def load_workers(self) -> list[WorkerState]:
        """Return the workers in the repository, in the order in which their tasks were delegated."""
        return load_readable_states(self.store, (row.run for row in WorkerIndex(self.store).list_all(self.root)))

    def load_worker(self, ref: str) -> WorkerState:
        """Return a worker, given its branch or name, its run id or a prefix of it, or `last`.

        Raise Mistake unless exactly one worker matches.
        """
        run = find.resolve(self.store, ref, repo=self.folder, wanted="worker").run
        return load_worker_states(self.store, [run])[0]

    def open_repositories(self, worker: WorkerState) -> Iterator[tuple[RepoContext, CheckoutWork]]:
        """Yield each repository of a worker, this one first, with the worker's work in it."""
        first, *others = worker.works
        yield self, first
        for work in others:
            yield RepoContext(Path(work.root), self.settings), work


def load_worker_states(store: StoreAddress, runs: Iterable[str]) -> list[WorkerState]:
    """Return the worker's state for each of these runs."""
    run_ids = list(runs)
    if not run_ids:
        return []
    with StoreReader(store) as reader:
        return [load_worker_state(reader, run) for run in run_ids]


def load_readable_states(store: StoreAddress, runs: Iterable[str]) -> list[WorkerState]:
    """Return the worker's state for each of these runs that can be read.

    One run that cannot be read, which a host of a fleet may have written, does not hide the others.
    """
    run_ids, found = list(runs), []
    if not run_ids:
        return []
    with StoreReader(store) as reader:
        for run in run_ids:
            with suppress(StoreCorrupt, NoSuchRun):
                found.append(load_worker_state(reader, run))
    return found


def load_worker_state(reader: StoreReader, run: str) -> WorkerState:
    """Return the state of one worker."""
    lease = reader.read_summary(run).lease
    entries = reader.read_entries(run, kinds=WorkerRunState.KINDS)
    return build_worker_state(entries, lease, posted=reader.read_mailbox_refs(run))


async def read_worktree_statuses(store: StoreAddress, workers: Iterable[WorkerState]) -> dict[str, WorktreeStatus]:
    """Return the checkout status of workers that have not ended, keyed by run.

    Checkouts that cannot be read are omitted.
    """
    statuses: dict[str, WorktreeStatus] = {}
    for worker in workers:
        if worker.is_over or not worker.worker_task.has_checkout or not worker.base:
            continue
        for work in worker.works:
            try:
                worktrees = Worktrees(repository=Repository.at(Path(work.root)), ledger=Ledger(store))
                status = await worktrees.read_status(await worktrees.find_checkout(worker.worker_task.branch))
            except PodiumError:
                break  # the checkout is being created or removed, so there are no lines to count
            own = statuses.get(worker.run)
            statuses[worker.run] = status if own is None else _add_status(own, status, work.name)
    return statuses


def _add_status(own: WorktreeStatus, there: WorktreeStatus, name: str) -> WorktreeStatus:
    """Return the status with the changed files of an additional repository added. Their paths get the prefix `name`."""
    files = tuple(replace(file, path=f"{name}/{file.path}") for file in there.files)
    modified, untracked = own.modified + there.modified, own.untracked + there.untracked
    return replace(own, modified=modified, untracked=untracked, files=(*own.files, *files))
