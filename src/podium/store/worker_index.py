"""Index the runs that are workers, and record which of them have not ended.

A worker's task and progress are on its run's timeline. The index lets callers find the run without searching all
runs.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import NamedTuple

import msgspec

from ..values.fleet_job import FleetJob
from ..values.store_address import PostgresAddress, StoreAddress
from ..values.worker_task import WorkerTask
from .sql_connection import Statement
from .store_connection import open_connection, open_for_reading, translate_errors
from .store_lock import hold_store_lock
from .write_statements import CLOSE_WORKER, INSERT_WORKER, INSERT_WORKER_AND_JOB

STOP = b'{"type":"stop_asked"'


class WorkerRow(NamedTuple):
    """A worker's run. `name` is its branch or, for a read-only worker, its name.

    `is_open` is true until the end of the run is recorded.
    """

    run: str
    root: str
    name: str
    is_open: bool


def build_worker_insert(run: str, worker_task: WorkerTask, job: FleetJob | None = None) -> Statement:
    """Return the statement that adds a worker to the index and, if given, its job for the hosts of a fleet."""
    worker = (run, worker_task.root, worker_task.worker_name)
    if job is None:
        return (INSERT_WORKER, worker)
    values = [list(one) if isinstance(one, tuple) else one for one in msgspec.structs.astuple(job)]
    return (INSERT_WORKER_AND_JOB, (*worker, *values))


class WorkerIndex:
    """The workers in a store."""

    def __init__(self, store: StoreAddress) -> None:
        self._store = store

    @asynccontextmanager
    async def hold_delegation_lock(self) -> AsyncIterator[None]:
        """Prevent other processes from starting workers in this store until the block ends."""
        async with hold_store_lock(self._store, "hiring", doing="starting workers"):
            yield

    def list_open(self) -> list[WorkerRow]:
        """Return the workers whose end is not recorded, in the order in which they were started."""
        return self._query_rows("WHERE worker.is_open = 1", ())

    def list_all(self, root: str | None = None) -> list[WorkerRow]:
        """Return the workers in the repository `root`, or all workers, in the order in which they were started.

        The workers in a repository include those that its workers have started on other machines.
        """
        return self._query_rows("", ()) if root is None else self._query_rows(f"WHERE {self._in_root}", (root,))

    def list_listed(self, root: str | None = None) -> list[WorkerRow]:
        """Return the workers in the repository `root`, or all workers if it is None.

        Workers of teams whose group was deleted are left out.
        """
        where, values = ("", ()) if root is None else (f"AND {self._in_root}", (root,))
        return self._query_rows(
            "WHERE NOT EXISTS (SELECT 1 FROM placement WHERE placement.run = worker.run AND placement.place IS NULL)"
            f" {where}",
            values,
        )

    def find_by_name(self, root: str, name: str) -> list[WorkerRow]:
        """Return the workers on the branch `name`, or the read-only workers called `name`, oldest first."""
        return self._query_rows("WHERE worker.root = ? AND worker.branch = ?", (root, name))

    def find_in_repository(self, root: str, name: str) -> list[WorkerRow]:
        """Return the workers in the repository `root` on the branch `name` or with that name, oldest first.

        The workers in a repository include those that its workers have started on other machines.
        """
        return self._query_rows(f"WHERE {self._in_root} AND worker.branch = ?", (root, name))

    def list_fleet_runs(self) -> set[str]:
        """Return the unfinished runs that are queued for the hosts of a fleet or are running on one of them."""
        if not isinstance(self._store, PostgresAddress):
            return set()
        with translate_errors(self._store), closing(open_for_reading(self._store)) as connection:
            return {str(run) for (run,) in connection.execute("SELECT run FROM job WHERE NOT is_over")}

    def mark_closed(self, run: str) -> None:
        """Record that a worker's run has ended."""
        with translate_errors(self._store), closing(open_connection(self._store, create=False)) as connection:
            connection.execute(CLOSE_WORKER, (run,))

    def list_stop_requested(self) -> set[str]:
        """Return the runs of unfinished workers for which a stop was requested."""
        with translate_errors(self._store), closing(open_for_reading(self._store)) as connection:
            asked = connection.execute(
                "SELECT DISTINCT worker.run FROM worker JOIN mail ON mail.run = worker.run"
                " WHERE worker.is_open = 1 AND substr(mail.line, 1, ?) = ?",
                (len(STOP), STOP),
            )
            return {str(row[0]) for row in asked}

    @property
    def _in_root(self) -> str:
        """The condition that selects the workers in a repository.

        In a PostgreSQL store, it also selects the workers that these workers have started, on any machine.
        """
        if not isinstance(self._store, PostgresAddress):
            return "worker.root = ?"
        return (
            "worker.run IN (WITH RECURSIVE known (run) AS (SELECT run FROM worker WHERE root = ?"
            " UNION SELECT job.run FROM job JOIN known ON job.parent = known.run) SELECT run FROM known)"
        )

    def _query_rows(self, which: str, values: tuple[str, ...]) -> list[WorkerRow]:
        if not self._store.exists():
            return []
        with translate_errors(self._store), closing(open_for_reading(self._store)) as connection:
            rows = connection.execute(
                "SELECT worker.run, worker.root, worker.branch, worker.is_open FROM worker"
                f" JOIN run ON run.id = worker.run {which} ORDER BY run.created, worker.run",
                values,
            )
            return [WorkerRow(run, root, name, bool(is_open)) for run, root, name, is_open in rows]
