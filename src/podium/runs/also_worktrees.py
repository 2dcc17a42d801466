"""Find the worktrees in other repositories that belong to the workers of a repository, and clean them up."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from anyio import to_thread

from ..store.reader import StoreReader
from ..store.worktree_ledger import Ledger, WorktreeRow
from ..values.errors import NoSuchRun, PodiumError
from ..values.store_address import StoreAddress
from ..workspace.git.repository import Repository
from ..workspace.worktrees.cleanup import CleanupResult, clean_up_worktrees
from .worker_lookup import open_worktrees


@dataclass(frozen=True, slots=True, kw_only=True)
class AlsoWorktree:
    """A worktree in the repository `root` that belongs to a worker of another repository."""

    root: str
    path: Path
    branch: str
    run: str


async def list_also_worktrees(ledger: Ledger, repository: Repository) -> list[AlsoWorktree]:
    """Return the worktrees in other repositories that belong to workers of this repository."""
    rows = [row for row in await ledger.list_worktrees() if row.run and row.repository != repository.common_dir]
    if not rows:
        return []
    return await to_thread.run_sync(_select_worktrees, ledger.store, rows, str(repository.main_folder))


def _select_worktrees(store: StoreAddress, rows: list[WorktreeRow], main: str) -> list[AlsoWorktree]:
    found: list[AlsoWorktree] = []
    with StoreReader(store) as reader:
        for row in rows:
            try:
                task = reader.read_summary(row.run).started.errand
            except NoSuchRun:
                continue
            if task is not None and task.root == main:
                places = (one.root for one in task.also if one.path == str(row.path))
                found += [AlsoWorktree(root=root, path=row.path, branch=row.branch, run=row.run) for root in places]
    return found


async def clean_up_also_worktrees(
    ledger: Ledger, repository: Repository, *, busy: Callable[[], Collection[str]], force: bool, dry_run: bool
) -> list[CleanupResult]:
    """Remove the worktrees in other repositories that this repository's workers no longer need."""
    lines: list[CleanupResult] = []
    worktrees = await list_also_worktrees(ledger, repository)
    for root in dict.fromkeys(one.root for one in worktrees):
        own = [one for one in worktrees if one.root == root]
        try:
            of = open_worktrees(Repository.at(Path(root)))
            runs = {one.run for one in own}
            lines += await clean_up_worktrees(of, busy=busy, force=force, dry_run=dry_run, runs=runs)
        except PodiumError as error:
            lines += [CleanupResult(path=one.path, branch=one.branch, act="kept", why=str(error)) for one in own]
    return lines
