"""Keep a ledger of the worktrees that Podium created, with the run and the state of each worktree.

A worktree is recorded before it is created on disk, and recorded as removed only after it is removed from disk, so
that a crash never leaves an unknown folder. The ledger does not record the state of files; git tracks that.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from anyio import to_thread

from ..values.store_address import StoreAddress
from .sql_connection import SqlConnection, SqlValue
from .store_connection import open_connection, translate_errors
from .store_lock import hold_lock

WorktreeState = Literal["making", "ready", "removing", "gone"]

T = TypeVar("T")

COLUMNS = "id, path, repository, branch, base, run, git_dir, is_new_branch, state, created, size"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorktreeRow:
    """A worktree in the ledger.

    `repository` is the git directory that all worktrees of a repository share, `base` is the id of the commit that
    the work started from, and `run` is the run that uses the worktree, if any. `size` is the size in bytes when last
    measured.
    """

    id: int
    path: Path
    repository: Path
    branch: str
    base: str
    run: str
    git_dir: Path
    is_new_branch: bool
    state: WorktreeState
    created: float
    size: int


class Ledger:
    """The record of a store's worktrees on this machine. Its methods sync every change to disk before they return."""

    def __init__(self, store: StoreAddress) -> None:
        self.store = store

    async def record_new(
        self, path: Path, *, repository: Path, branch: str, base: str, run: str = "", is_new_branch: bool
    ) -> WorktreeRow | None:
        """Record that a worktree is about to be created, and return its row, or None if its path or branch is taken."""

        def insert_row(connection: SqlConnection) -> WorktreeRow | None:
            values = (str(path), str(repository), branch, base, run, is_new_branch, time.time())
            # A conflict is not a store error: the return value reports it.
            made = connection.execute(
                "INSERT INTO worktree (path, repository, branch, base, run, git_dir, is_new_branch, state,"
                " created, size) VALUES (?, ?, ?, ?, ?, '', ?, 'making', ?, 0) ON CONFLICT DO NOTHING RETURNING id",
                values,
            ).fetchone()
            return None if made is None else _query_worktrees(connection, "id = ?", made)[0]

        return await self._run_in_thread(insert_row, create=True)

    async def record_state(
        self, worktree: WorktreeRow, *, state: WorktreeState, git_dir: Path | None = None, size: int | None = None
    ) -> WorktreeRow:
        """Record a worktree's new state, and return its updated row."""

        def update_state(connection: SqlConnection) -> WorktreeRow:
            connection.execute(
                "UPDATE worktree SET state = ?, git_dir = coalesce(?, git_dir), size = coalesce(?, size) WHERE id = ?",
                (state, None if git_dir is None else str(git_dir), size, worktree.id),
            )
            return _query_worktrees(connection, "id = ?", (worktree.id,))[0]

        return await self._run_in_thread(update_state, create=True)

    async def record_size(self, worktree: WorktreeRow, size: int) -> None:
        """Record a worktree's current size, unless it is being created or removed."""

        def update_size(connection: SqlConnection) -> None:
            connection.execute("UPDATE worktree SET size = ? WHERE id = ? AND state = 'ready'", (size, worktree.id))

        await self._run_in_thread(update_size, create=False)

    async def list_worktrees(self, repository: Path | None = None) -> list[WorktreeRow]:
        """Return all worktrees not yet removed, in one repository or in all, oldest first."""
        if not self.store.exists():
            return []

        def select_rows(connection: SqlConnection) -> list[WorktreeRow]:
            if repository is None:
                return _query_worktrees(connection, "state != 'gone'", ())
            return _query_worktrees(connection, "state != 'gone' AND repository = ?", (str(repository),))

        return await self._run_in_thread(select_rows, create=False)

    async def find_last_run(self, repository: Path, branch: str) -> str:
        """Return the run that a branch's newest worktree belongs to, or an empty string if no worktree is recorded.

        Removed worktrees count too.
        """
        if not self.store.exists():
            return ""

        def select_run(connection: SqlConnection) -> str:
            rows = _query_worktrees(connection, "repository = ? AND branch = ?", (str(repository), branch))
            return rows[-1].run if rows else ""

        return await self._run_in_thread(select_run, create=False)

    @asynccontextmanager
    async def hold_worktree_lock(self) -> AsyncIterator[int]:
        """Prevent other processes on this machine from creating or removing worktrees until the block ends.

        A partly created or partly removed worktree that is found in this block was left by a process that died.
        Pass the descriptor to child processes that work on worktrees: they keep the lock if this process is killed.
        """
        async with hold_lock(self.store, "worktrees", doing="creating or removing worktrees") as lock:
            yield lock

    async def _run_in_thread(self, work: Callable[[SqlConnection], T], *, create: bool) -> T:
        def run_work() -> T:
            with translate_errors(self.store), closing(open_connection(self.store, create=create)) as connection:
                connection.set_durable(True)
                return work(connection)

        return await to_thread.run_sync(run_work)


def _query_worktrees(connection: SqlConnection, where: str, values: tuple[SqlValue, ...]) -> list[WorktreeRow]:
    rows = connection.execute(f"SELECT {COLUMNS} FROM worktree WHERE {where} ORDER BY id", values)
    return [
        WorktreeRow(
            id=id,
            path=Path(path),
            repository=Path(repository),
            branch=branch,
            base=base,
            run=run,
            git_dir=Path(git_dir),
            is_new_branch=bool(is_new_branch),
            state=state,
            created=created,
            size=size,
        )
        for id, path, repository, branch, base, run, git_dir, is_new_branch, state, created, size in rows
    ]
