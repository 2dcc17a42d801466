"""The workers that were hired: which runs are errands, and which of those are not over.

What a worker was sent to do, and how far it came, stands on its run's timeline. This list only finds the
run, so that nobody has to look through all of them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import NamedTuple

from ...values.worker_task import Errand
from .schema import connect, explained
from .store_lock import alone
from .writer import Statement

STOP = '{"type":"stop_asked"%'


class Hired(NamedTuple):
    """A run that is an errand. `name` is its branch, or what a reader is called. `is_open` until its end was seen."""

    run: str
    root: str
    name: str
    is_open: bool


def hiring(run: str, errand: Errand) -> Statement:
    """What puts a worker on the list."""
    return ("INSERT INTO worker (run, root, branch, is_open) VALUES (?, ?, ?, 1)", (run, errand.root, errand.called))


class Crew:
    """The workers of a store."""

    def __init__(self, store: Path) -> None:
        self._store = store

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Nobody else hires a worker in this store meanwhile."""
        async with alone(self._store, "hiring", doing="hiring workers"):
            yield

    def open(self) -> list[Hired]:
        """Those that are not known to be over, in the order in which they were hired."""
        return self._found("WHERE worker.is_open", ())

    def all(self, root: str | None = None) -> list[Hired]:
        """Every worker, or every worker in a repository, in the order in which they were hired."""
        return self._found("", ()) if root is None else self._found("WHERE worker.root = ?", (root,))

    def of(self, root: str, name: str) -> list[Hired]:
        """The workers of a branch, and readers of that name, in the order in which they were hired."""
        return self._found("WHERE worker.root = ? AND worker.branch = ?", (root, name))

    def dismiss(self, run: str) -> None:
        """Note that a worker's run has ended."""
        with explained(self._store), closing(connect(self._store, create=False)) as connection:
            connection.execute("UPDATE worker SET is_open = 0 WHERE run = ?", (run,))

    def stopped(self) -> set[str]:
        """The open workers that somebody wants to end."""
        with explained(self._store), closing(connect(self._store, create=False)) as connection:
            asked = connection.execute(
                "SELECT DISTINCT worker.run FROM worker JOIN mail ON mail.run = worker.run"
                " WHERE worker.is_open AND CAST(mail.line AS TEXT) LIKE ?",
                (STOP,),
            )
            return {str(row[0]) for row in asked}

    def _found(self, which: str, values: tuple[str, ...]) -> list[Hired]:
        if not self._store.exists():
            return []
        with explained(self._store), closing(connect(self._store, create=False)) as connection:
            rows = connection.execute(
                "SELECT worker.run, worker.root, worker.branch, worker.is_open FROM worker"
                f" JOIN run ON run.id = worker.run {which} ORDER BY run.created, worker.run",
                values,
            )
            return [Hired(run, root, name, bool(is_open)) for run, root, name, is_open in rows]
