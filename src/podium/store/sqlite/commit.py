"""Commit batches of writes to a SQLite store.

A small transaction takes less time than waking a thread, so it is committed on the event loop. The writer's thread
commits a batch if the batch is large or must be synced to disk, if the file is locked, or if the event loop has
committed many batches in a row.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection, Iterable, Sequence
from operator import attrgetter
from pathlib import Path

from ...core.journal_rows import JournalRow
from ...values.errors import PodiumError, StoreCorrupt, StoreFailed
from ..progress_files import Progress, record_progress
from ..sql_connection import Statement
from ..store_write import Write, raise_lease_lost
from .connection import open_sqlite, translate_sqlite_errors

SMALL_BATCH_WRITES = 128
MAX_INLINE_BATCHES = 256
"""How many consecutive batches are committed on the event loop before the writer's thread commits a batch. Only the
thread runs checkpoints, which move the committed data from the write-ahead log into the file."""

_must_survive_power_loss = attrgetter("survives_power_loss")


class SqliteCommitter:
    """Commits batches of writes to a SQLite store, on the event loop or in the writer's thread.

    The event loop and the thread have separate connections. The event loop's connection never waits for a lock.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread_connection = open_sqlite(path, create=True)
        self._loop_connection = open_sqlite(path, create=False)
        self._loop_connection.set_lock_timeout(0)
        self._loop_connection.execute("PRAGMA wal_autocheckpoint = 0")
        self._file_name = str(path)
        self._file_id = _read_file_id(self._file_name)
        self._inline_batches = 0

    def close(self) -> None:
        self._thread_connection.close()
        self._loop_connection.close()

    def try_commit_at_once(self, writes: Sequence[Write]) -> bool:
        """Commit a small batch on the event loop. Return False if the writer's thread must commit the batch instead."""
        if (
            len(writes) > SMALL_BATCH_WRITES
            or self._inline_batches >= MAX_INLINE_BATCHES
            or any(map(_must_survive_power_loss, writes))
        ):
            return False
        try:
            self._require_same_file()
            _commit_writes(self._loop_connection, writes)
        except (sqlite3.Error, PodiumError):
            return False
        self._inline_batches += 1
        return True

    def commit(self, writes: Sequence[Write]) -> None:
        """Commit writes in one transaction, then update the progress files of the runs."""
        self._inline_batches = 0
        self._require_same_file()
        with translate_sqlite_errors(self._path):
            _commit_writes(self._thread_connection, writes)
        self._record_progress(writes)

    def _record_progress(self, writes: Sequence[Write]) -> None:
        """Record in each run's progress file the number and hash of the last entry that must survive a power loss."""
        rows = {write.row.run: write.row for write in writes if write.survives_power_loss and write.row is not None}
        try:
            for run, row in rows.items():
                record_progress(self._path, run, Progress(row.seq, row.hash))
        except StoreFailed:
            self._require_same_file()
            raise

    def _require_same_file(self) -> None:
        """Raise StoreCorrupt if the file was deleted or replaced, because SQLite would write to the old file."""
        if _read_file_id(self._file_name) != self._file_id:
            raise StoreCorrupt(
                f"the store {self._path} was deleted or replaced while it was in use; nothing more was written. "
                "Put it back and resume the run, or start the run again"
            )


def _read_file_id(path: str) -> tuple[int, int] | None:
    """Return the device and inode of a file, or None if there is no file."""
    try:
        found = os.stat(path)  # noqa: PTH116 - called before every commit, and a Path needs three more calls
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _commit_writes(connection: sqlite3.Connection, writes: Iterable[Write]) -> None:
    """Commit all writes in one transaction, synced to disk if any of them requires it."""
    before: list[Statement] = []
    holders: set[tuple[str, int]] = set()
    new_runs: set[tuple[str, int]] = set()
    rows: list[JournalRow] = []
    after: list[Statement] = []
    survives_power_loss = False
    for holder, first, row, last, is_full in writes:
        if holder is not None:
            (holders if first is None else new_runs).add((holder.run, holder.epoch))
        if first is not None:
            before.append(first)
        if row is not None:
            rows.append(row)
        if last is not None:
            after.append(last)
        survives_power_loss = survives_power_loss or is_full
    if len(holders) == 1 and not before and not after and not survives_power_loss and 0 < len(rows) <= _FEW_ROWS:
        _insert_if_owned(connection, rows, *next(iter(holders)))
        return
    if survives_power_loss:
        connection.execute("PRAGMA synchronous = FULL")
    try:
        connection.execute("BEGIN IMMEDIATE")
        for statement in before:
            connection.execute(*statement)
        # Runs that this transaction creates need no check: this process owns them, or creating them failed.
        _must_own_runs(connection, holders - new_runs if new_runs else holders)
        _insert_rows(connection, rows)
        for statement in after:
            connection.execute(*statement)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    finally:
        if survives_power_loss:
            connection.execute("PRAGMA synchronous = NORMAL")


def _must_own_runs(connection: sqlite3.Connection, holders: Collection[tuple[str, int]]) -> None:
    """Raise LeaseLost if another process owns one of these runs. The transaction prevents takeovers until it ends."""
    if not holders:
        return
    if len(holders) == 1:
        [(run, epoch)] = holders
        if connection.execute("SELECT 1 FROM run WHERE id = ? AND epoch = ?", (run, epoch)).fetchone() is not None:
            return
    held = connection.execute(
        f"SELECT COUNT(*) FROM run WHERE (id, epoch) IN (VALUES {','.join(['(?,?)'] * len(holders))})",
        [value for holder in holders for value in holder],
    ).fetchone()
    if held == (len(holders),):
        return
    epochs = dict(connection.execute("SELECT id, epoch FROM run"))
    lost = next(run for run, epoch in holders if epochs.get(run) != epoch)
    raise_lease_lost(lost)


def _insert_if_owned(connection: sqlite3.Connection, rows: Sequence[JournalRow], run: str, epoch: int) -> None:
    """Insert a few rows of one run in a single atomic statement.

    Raise LeaseLost if another process has taken over the run.
    """
    values = [value for row in rows for value in row]
    if connection.execute(_OWNED_INSERTS[len(rows)], [*values, run, epoch]).rowcount != len(rows):
        raise_lease_lost(run)


def _insert_rows(connection: sqlite3.Connection, rows: Sequence[JournalRow]) -> None:
    """Insert rows, many per statement.

    Each statement releases the interpreter lock once. With one statement per row, the thread would wait
    for the lock once per row, behind a busy event loop.
    """
    place = 0
    while place < len(rows):
        left = len(rows) - place
        size = left if left <= _FEW_ROWS else min(1 << (left.bit_length() - 1), _MOST_ROWS)
        values = [value for row in rows[place : place + size] for value in row]
        connection.execute(_INSERTS[size], values)
        place += size


_MOST_ROWS = 512
_FEW_ROWS = 8
_INSERTS = {
    size: "INSERT INTO entry (run, seq, epoch, kind, key, line, hash) VALUES " + ",".join(["(?,?,?,?,?,?,?)"] * size)
    for size in (*range(1, _FEW_ROWS + 1), *(1 << power for power in range(_MOST_ROWS.bit_length())))
}
_OWNED_INSERTS = {
    size: "INSERT INTO entry (run, seq, epoch, kind, key, line, hash) SELECT * FROM (VALUES "
    + ",".join(["(?,?,?,?,?,?,?)"] * size)
    + ") WHERE EXISTS (SELECT 1 FROM run WHERE id = ? AND epoch = ?)"
    for size in range(1, _FEW_ROWS + 1)
}
