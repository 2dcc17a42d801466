"""Write to a SQLite store through one queue, in order, in as few transactions as possible.

Writes that are queued during one iteration of the event loop, or while a transaction is in progress, share
the next transaction. A small transaction takes less time than waking a thread, so it is committed on the
event loop. A batch goes to a thread if it is large, must be synced to disk or finds the file locked. All
state belongs to the event loop; the thread only commits batches.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ..core.journal_rows import JournalRow
from ..values.errors import LeaseLost, PodiumError, StoreCorrupt, StoreFailed
from .sqlite.progress_files import Progress, record_progress
from .sqlite.schema import open_connection, translate_sqlite_errors

SMALL_BATCH_WRITES = 128
MAX_INLINE_BATCHES = 256
"""How many consecutive batches are committed on the event loop before the thread commits a batch. Only the thread
runs checkpoints, which move the committed data from the write-ahead log into the file."""

Statement = tuple[str, tuple[Any, ...]]


class LeaseHolder(Protocol):
    """A run's writer. Its writes are rejected if its epoch is outdated, and always after its first error."""

    run: str
    epoch: int
    error: PodiumError | None


class Write(NamedTuple):
    """A row and the statements before and after it, written atomically."""

    holder: LeaseHolder | None
    before: Statement | None = None
    row: JournalRow | None = None
    after: Statement | None = None
    survives_power_loss: bool = False


_get_row = attrgetter("row")
_must_survive_power_loss = attrgetter("survives_power_loss")


@dataclass(slots=True)
class Batch:
    """The writes in one transaction, and the holders whose writes were rejected."""

    writes: list[Write] = field(default_factory=list)
    refused: list[tuple[LeaseHolder, PodiumError]] = field(default_factory=list)
    done: asyncio.Event = field(default_factory=asyncio.Event)


class StoreWriter:
    """The writer for the runs that this process owns. `on_written` is called after rows are committed."""

    def __init__(self, path: Path, *, on_written: Callable[[], None], fault: Callable[[], None] | None = None) -> None:
        self._path = path
        self._on_written = on_written
        self._fault = fault
        self._refusal: PodiumError | None = None
        self._loop = asyncio.get_running_loop()
        self._thread_connection = open_connection(path, create=True)
        self._loop_connection = open_connection(path, create=False)
        self._loop_connection.execute("PRAGMA busy_timeout = 0")
        self._loop_connection.execute("PRAGMA wal_autocheckpoint = 0")
        self._file_name = str(path)
        self._file_id = _read_file_id(self._file_name)
        self._inline_batches = 0
        self._pending = Batch()
        self._is_due = False
        self._is_committing = False
        self._is_closed = False
        self._to_thread: queue.SimpleQueue[Batch | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._commit_batches, name="podium-store", daemon=True)
        self._thread.start()

    def enqueue(self, write: Write) -> Batch:
        """Queue a write, and return the batch that it will be part of. Raise StoreFailed if the writer is closed."""
        if self._is_closed:
            raise StoreFailed("this App is closed; open another App to continue")
        if not self._is_due and not self._is_committing:
            self._is_due = True
            self._loop.call_soon(self.start_batch)
        self._pending.writes.append(write)
        return self._pending

    async def aclose(self) -> None:
        """Commit everything queued, then close the connections."""
        await self.enqueue(Write(None)).done.wait()
        self._is_closed = True
        self._to_thread.put(None)
        self._thread.join()
        self._thread_connection.close()
        self._loop_connection.close()

    # On the event loop

    def start_batch(self) -> None:
        """Start committing the queued writes, unless a batch is already being committed."""
        self._is_due = False
        if self._is_committing or not self._pending.writes:
            return
        batch, self._pending = self._pending, Batch()
        # After a holder's write fails, all its later writes are rejected, so that no timeline has a gap.
        batch.writes = [write for write in batch.writes if write.holder is None or write.holder.error is None]
        if self._is_small(batch) and self._try_commit_inline(batch):
            batch.done.set()
        else:
            self._inline_batches = 0
            self._is_committing = True
            self._to_thread.put(batch)

    def _is_small(self, batch: Batch) -> bool:
        return (
            len(batch.writes) <= SMALL_BATCH_WRITES
            and self._inline_batches < MAX_INLINE_BATCHES
            and self._fault is None
            and not any(map(_must_survive_power_loss, batch.writes))
        )

    def _try_commit_inline(self, batch: Batch) -> bool:
        """Commit a batch on the event loop; return False on any error, so that the thread retries and reports it."""
        try:
            self._require_same_file()
            commit_writes(self._loop_connection, batch.writes)
        except (sqlite3.Error, PodiumError):
            return False
        self._inline_batches += 1
        self._notify_written(batch)
        batch.writes.clear()
        return True

    def _on_batch_done(self, batch: Batch) -> None:
        for holder, error in batch.refused:
            holder.error = holder.error or error
        batch.done.set()
        self._is_committing = False
        self.start_batch()

    def _notify_written(self, batch: Batch) -> None:
        if any(map(_get_row, batch.writes)):
            self._on_written()

    # In the thread

    def _commit_batches(self) -> None:
        while (batch := self._to_thread.get()) is not None:
            parts = [batch.writes] if self._fault is None else [[write] for write in batch.writes]
            for writes in parts:
                self._commit_or_split(batch, writes)
            self._notify_written(batch)
            # The holder refers to its last batch, and the batch's writes refer to the holder: break that cycle.
            batch.writes.clear()
            self._loop.call_soon_threadsafe(self._on_batch_done, batch)

    def _commit_or_split(self, batch: Batch, writes: Sequence[Write]) -> None:
        """Commit the writes together; if that fails, commit them run by run, so that a failure affects only one run."""
        try:
            if self._refusal is not None:
                raise self._refusal
            self._require_same_file()
            with translate_sqlite_errors(self._path):
                commit_writes(self._thread_connection, writes)
            self._record_progress(writes)
        except PodiumError as error:
            holders = {id(write.holder): write.holder for write in writes}
            if len(holders) == 1:
                batch.refused += [(holder, error) for holder in holders.values() if holder is not None]
                return
            for holder in holders.values():
                self._commit_or_split(batch, [write for write in writes if write.holder is holder])
            return
        if self._fault is not None and writes[0].row is not None:
            try:
                self._fault()
            except PodiumError as error:
                self._refusal = error

    def _record_progress(self, writes: Sequence[Write]) -> None:
        """Write to each run's progress file the last of these entries that must survive power loss."""
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


def commit_writes(connection: sqlite3.Connection, writes: Iterable[Write]) -> None:
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
        insert_if_owned(connection, rows, *next(iter(holders)))
        return
    if survives_power_loss:
        connection.execute("PRAGMA synchronous = FULL")
    try:
        connection.execute("BEGIN IMMEDIATE")
        for statement in before:
            connection.execute(*statement)
        # Runs that this transaction creates need no check: this process owns them, or creating them failed.
        must_own_runs(connection, holders - new_runs if new_runs else holders)
        insert_rows(connection, rows)
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


def must_own_runs(connection: sqlite3.Connection, holders: Collection[tuple[str, int]]) -> None:
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
    raise LeaseLost(f"run {lost} was taken over by another process; this process can no longer write to it")


def insert_if_owned(connection: sqlite3.Connection, rows: Sequence[JournalRow], run: str, epoch: int) -> None:
    """Insert a few rows of one run in a single atomic statement.

    Raise LeaseLost if another process has taken it over.
    """
    values = [value for row in rows for value in row]
    if connection.execute(_OWNED_INSERTS[len(rows)], [*values, run, epoch]).rowcount != len(rows):
        raise LeaseLost(f"run {run} was taken over by another process; this process can no longer write to it")


def insert_rows(connection: sqlite3.Connection, rows: Sequence[JournalRow]) -> None:
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
