"""The workers that were hired: which runs are errands, and which of those are not over.

What a worker was sent to do, and how far it came, stands on its run's timeline. This list only finds the
run, so that nobody has to look through all of them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import NamedTuple

from ...values.worker_task import WorkerTask
from .schema import open_connection, translate_sqlite_errors
from .store_lock import hold_lock
from .writer import Statement

STOP = '{"type":"stop_asked"%'


class WorkerRow(NamedTuple):
    """A run that is an errand. `name` is its branch, or what a reader is called. `is_open` until its end was seen."""

    run: str
    root: str
    name: str
    is_open: bool


def build_worker_insert(run: str, worker_task: WorkerTask) -> Statement:
    """What puts a worker on the list."""
    return (
        "INSERT INTO worker (run, root, branch, is_open) VALUES (?, ?, ?, 1)",
        (run, worker_task.root, worker_task.worker_name),
    )


class WorkerIndex:
    """The workers of a store."""

    def __init__(self, store: Path) -> None:
        self._store = store

    @asynccontextmanager
    async def hold_delegation_lock(self) -> AsyncIterator[None]:
        """Nobody else hires a worker in this store meanwhile."""
        async with hold_lock(self._store, "hiring", doing="hiring workers"):
            yield

    def list_open(self) -> list[WorkerRow]:
        """Those that are not known to be over, in the order in which they were hired."""
        return self._query_rows("WHERE worker.is_open", ())

    def list_all(self, root: str | None = None) -> list[WorkerRow]:
        """Every worker, or every worker in a repository, in the order in which they were hired."""
        return self._query_rows("", ()) if root is None else self._query_rows("WHERE worker.root = ?", (root,))

    def find_by_name(self, root: str, name: str) -> list[WorkerRow]:
        """The workers of a branch, and readers of that name, in the order in which they were hired."""
        return self._query_rows("WHERE worker.root = ? AND worker.branch = ?", (root, name))

    def mark_closed(self, run: str) -> None:
        """Note that a worker's run has ended."""
        with translate_sqlite_errors(self._store), closing(open_connection(self._store, create=False)) as connection:
            connection.execute("UPDATE worker SET is_open = 0 WHERE run = ?", (run,))

    def list_stop_requested(self) -> set[str]:
        """The open workers that somebody wants to end."""
        with translate_sqlite_errors(self._store), closing(open_connection(self._store, create=False)) as connection:
            asked = connection.execute(
                "SELECT DISTINCT worker.run FROM worker JOIN mail ON mail.run = worker.run"
                " WHERE worker.is_open AND CAST(mail.line AS TEXT) LIKE ?",
                (STOP,),
            )
            return {str(row[0]) for row in asked}

    def _query_rows(self, which: str, values: tuple[str, ...]) -> list[WorkerRow]:
        if not self._store.exists():
            return []
        with translate_sqlite_errors(self._store), closing(open_connection(self._store, create=False)) as connection:
            rows = connection.execute(
                "SELECT worker.run, worker.root, worker.branch, worker.is_open FROM worker"
                f" JOIN run ON run.id = worker.run {which} ORDER BY run.created, worker.run",
                values,
            )
            return [WorkerRow(run, root, name, bool(is_open)) for run, root, name, is_open in rows]
