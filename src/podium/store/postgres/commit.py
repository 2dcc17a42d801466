"""Commit batches of writes to a PostgreSQL store.

A batch takes one round trip to the server, which replies once the batch is on disk. If the connection is lost, it is
unknown whether the batch was committed, so the committer checks before it sends the batch again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress

import psycopg

from ...core.journal_rows import JournalRow
from ...values.errors import StoreFailed
from ...values.store_address import PostgresAddress
from ..progress_files import Progress, record_progress
from ..sql_connection import SqlValue, Statement
from ..store_write import Write
from ..write_statements import TAKE_MAIL
from .connection import (
    AWAY_SECONDS,
    RETRY_SECONDS,
    connect,
    explain_error,
    is_server_away,
    translate_query,
    wait_for_connection,
)
from .login import APPEND_AS_HOST, AS_HOST, find_host_name, require_accepted

APPEND = b"SELECT append_entries(%s, %s, %s, %s, %s, %s, %s, %s, %s)"
REQUIRE = b"SELECT require_leases(%s, %s)"
WAKE_FOLLOWERS = b"SELECT set_config('synchronous_commit', 'off', TRUE), pg_notify('podium_follower', '')"
"""The statement that wakes the followers after the commit.

It runs in its own transaction, because the server never commits two transactions with notifications at the same time. A
lost notification does no harm, because followers also check for new entries once a second."""


class PostgresCommitter:
    """Commits batches on its own connection, in the writer's thread."""

    def __init__(self, store: PostgresAddress, owner: str) -> None:
        self._store = store
        self._host_owner = owner if find_host_name(store) else ""
        self._connection = wait_for_connection(store)
        self._give_up: float | None = None
        """When to stop waiting for an unavailable server; None while the server is available."""

    def close(self) -> None:
        self._connection.close()

    def try_commit_at_once(self, writes: Sequence[Write]) -> bool:
        """Return False: a round trip to the server would block the event loop."""
        return False

    def commit(self, writes: Sequence[Write]) -> None:
        """Commit writes in one transaction. If the server is unavailable, retry for at most the duration of a lease."""
        batch = _Batch(writes, self._host_owner)
        is_in_doubt = False
        while True:
            try:
                if self._connection.closed:
                    self._connection = connect(self._store)
                if not (is_in_doubt and batch.is_committed(self._connection)):
                    batch.send(self._connection)
            except psycopg.errors.UniqueViolation as error:
                # The server may have committed the first attempt after the check and before the second attempt.
                if not (is_in_doubt and batch.is_committed(self._connection)):
                    raise explain_error(self._store, error) from error
            except psycopg.Error as error:
                if not self._connection.broken and not is_server_away(error):
                    raise explain_error(self._store, error) from error
                self._connection.close()
                is_in_doubt = True
                self._wait_before_retry(error)
                continue
            self._give_up = None
            batch.record_progress(self._store)
            return

    def _wait_before_retry(self, error: psycopg.Error) -> None:
        """Wait a moment, or raise StoreFailed if the server has been unavailable for too long."""
        now = time.monotonic()
        if self._give_up is None:
            self._give_up = now + AWAY_SECONDS
        if now > self._give_up:
            raise explain_error(self._store, error) from error
        time.sleep(RETRY_SECONDS)


class _Batch:
    """The writes of one transaction: the statements before the journal rows, the rows, and the statements after them.

    `host_owner` is the id of the owner if this process runs on a host of a fleet, and empty otherwise.
    """

    def __init__(self, writes: Sequence[Write], host_owner: str) -> None:
        self._host_owner = host_owner
        self._mails: list[SqlValue] = []
        """For each row, the id of the mailbox message that a host marks as taken when it appends the row, or 0."""
        self._before: list[Statement] = []
        self._after: list[Statement] = []
        self._rows: list[JournalRow] = []
        self._held: set[tuple[str, int]] = set()
        new: set[tuple[str, int]] = set()
        self._new_runs: list[tuple[SqlValue, ...]] = []
        self._urgent: dict[str, JournalRow] = {}
        """The last entry of each run that must survive a power loss."""
        self._is_durable = False
        for holder, first, row, last, is_full in writes:
            if holder is not None:
                (self._held if first is None else new).add((holder.run, holder.epoch))
                if first is not None:
                    self._new_runs.append(first[1])
            if first is not None:
                self._before.append(first)
            takes_mail = bool(host_owner) and last is not None and last[0] == TAKE_MAIL
            if row is not None:
                self._rows.append(row)
                if is_full:
                    self._urgent[row.run] = row
                self._mails.append(last[1][1] if takes_mail and last is not None else 0)
            if last is not None and not takes_mail:
                self._after.append(last)
            self._is_durable = self._is_durable or is_full
        # Runs that this transaction creates need no check: this process owns them, or creating them failed.
        self._held = self._held | new if host_owner else self._held - new

    def send(self, connection: psycopg.Connection) -> None:
        """Write everything in one transaction and one round trip. Raise PodiumError if this host may not write it."""
        called: list[psycopg.Cursor] = []

        def execute(sql: str, values: Sequence[SqlValue]) -> None:
            if self._host_owner and sql in AS_HOST:
                called.append(connection.execute(AS_HOST[sql].encode(), values))
            else:
                connection.execute(translate_query(sql), values)

        try:
            with connection.pipeline():
                connection.execute(b"BEGIN")
                if not self._is_durable:
                    # The commit then survives a crash of the server, but does not wait for replicas.
                    connection.execute(b"SET LOCAL synchronous_commit = local")
                for sql, values in self._before:
                    execute(sql, values)
                held = [list(column) for column in zip(*self._held, strict=True)] or [[], []]
                columns = [list(column) for column in zip(*self._rows, strict=True)]
                if self._rows and self._host_owner:
                    runs, seqs, _epochs, *others = columns
                    given = [self._host_owner, *held, runs, seqs, *others, self._mails]
                    called.append(connection.execute(APPEND_AS_HOST, given, binary=True))
                elif self._rows:
                    connection.execute(APPEND, [*held, *columns], binary=True)
                elif self._held and not self._host_owner:
                    connection.execute(REQUIRE, held)
                for sql, values in self._after:
                    execute(sql, values)
                connection.execute(b"COMMIT")
                if self._rows:
                    connection.execute(WAKE_FOLLOWERS)
        except psycopg.Error:
            if not connection.broken and not connection.closed:
                connection.rollback()
            raise
        for cursor in called:
            require_accepted(cursor)

    def record_progress(self, store: PostgresAddress) -> None:
        """Record on this machine the last entries that must survive a power loss. They are on the server either way."""
        with suppress(StoreFailed):
            for run, row in self._urgent.items():
                record_progress(store, run, Progress(row.seq, row.hash))

    def is_committed(self, connection: psycopg.Connection) -> bool:
        """Return whether an earlier attempt was committed.

        Only entries and new runs are checked: all other statements of a batch can be repeated.
        """
        if self._rows:
            last = self._rows[-1]
            sql = b"SELECT 1 FROM entry WHERE run = %s AND seq = %s AND hash = %s"
            values: tuple[SqlValue, ...] = (last.run, last.seq, last.hash)
        elif self._new_runs:
            run, _created, owner = self._new_runs[-1]
            sql, values = b"SELECT 1 FROM run WHERE id = %s AND owner = %s", (run, owner)
        else:
            return False
        return connection.execute(sql, values).fetchone() is not None
