"""Connect to a PostgreSQL store.

A process keeps a few connections idle after use, and reuses them. If the server is unavailable, and the process or its
parent has connected to it before, the process waits, because the server may be restarting.
"""

from __future__ import annotations

import atexit
import logging
import os
import select
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from typing import ClassVar

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.types.numeric import Int2Dumper

from ...values.errors import LeaseLost, StoreFailed, StoreUnreachable
from ...values.store_address import PostgresAddress
from ..sql_connection import LOCK_SECONDS, SqlValue
from .login import AS_HOST, build_connection_options, build_gap_error, find_host_name, require_accepted
from .schema import SCHEMA, read_schema_version, require_current_schema

AWAY_SECONDS = 30.0
"""How long a process waits for a server that has become unavailable: the duration of a lease."""
RETRY_SECONDS = 0.1
MOST_IDLE = 4

# psycopg warns on standard error about connections that were lost, which this module handles.
logging.getLogger("psycopg").addHandler(logging.NullHandler())

_idle: dict[tuple[int, str], list[psycopg.Connection]] = {}
"""The idle connections, for each process and database. A forked process must not use the connections of its parent."""
_known: set[PostgresAddress] = set()
"""The stores that this process, or the process that started it, has connected to."""
_lock = threading.Lock()


class PostgresConnection:
    """A connection to a PostgreSQL store, for the queries that all stores share.

    A SELECT outside a transaction is repeated on a new connection if the server has closed this one.
    """

    entry_order: ClassVar[tuple[str, ...]] = ("tx", "number")
    entry_position: ClassVar[tuple[str, str]] = ("tx", "number")
    entries_after: ClassVar[str] = "(tx, number) > (?, ?)"
    entries_before: ClassVar[str] = "(tx, number) < (?, ?)"
    settled_entries: ClassVar[str] = "tx < pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
    decision_entries: ClassVar[str] = "entry"

    def __init__(self, store: PostgresAddress) -> None:
        self._store = store
        self._connection = take_connection(store)
        self._is_host = bool(find_host_name(store))
        self._has_lock_timeout = False
        self._has_temporary_tables = False

    @property
    def in_transaction(self) -> bool:
        return self._connection.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR)

    def execute(self, sql: str, values: Sequence[SqlValue] = (), /) -> psycopg.Cursor:
        if self._is_host and sql in AS_HOST:
            cursor = self._connection.execute(AS_HOST[sql].encode(), values, binary=True)
            require_accepted(cursor)
            return cursor
        is_repeatable = sql.startswith("SELECT") and not self.in_transaction and not self._has_temporary_tables
        give_up = time.monotonic() + AWAY_SECONDS
        while True:
            try:
                return self._connection.execute(translate_query(sql), values, binary=True)
            except psycopg.OperationalError as error:
                if not is_repeatable or not is_server_away(error) or time.monotonic() > give_up:
                    raise
            self._connection.close()
            self._connection = take_connection(self._store)

    def executemany(self, sql: str, rows: Iterable[Sequence[SqlValue]], /) -> None:
        with self._connection.cursor() as cursor:
            cursor.executemany(translate_query(sql), list(rows))

    def close(self) -> None:
        """Keep the connection as an idle connection, or close it if it cannot be reused."""
        if self._has_temporary_tables or self.in_transaction:
            self._connection.close()
            return
        if self._has_lock_timeout:
            with suppress(psycopg.Error):
                self._connection.execute("RESET lock_timeout")
        _keep_connection(self._store, self._connection)

    def begin_read(self) -> None:
        self.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def begin_write(self, lock: str) -> None:
        self.execute("BEGIN")
        self.execute("SELECT pg_advisory_xact_lock(hashtextextended(?, 0))", (f"{SCHEMA} {lock}",))

    def set_durable(self, is_durable: bool) -> None:
        """Do nothing: every transaction is synced to disk, because otherwise a crash of the server could undo it."""

    def set_lock_timeout(self, seconds: float) -> None:
        self._has_lock_timeout = True
        self.execute(f"SET lock_timeout = {1000 * seconds:.0f}")

    def read_last_group_id(self) -> int:
        [(last,)] = self.execute("SELECT id FROM last_group")
        return int(last)

    def create_temporary_copies(self, *tables: str) -> None:
        self._has_temporary_tables = True
        for table in tables:
            self.execute(f"CREATE TEMP TABLE {table} (LIKE {SCHEMA}.{table} INCLUDING ALL)")


@cache
def translate_query(sql: str) -> bytes:
    """Return a query with psycopg's placeholders instead of question marks."""
    return sql.replace("%", "%%").replace("?", "%s").encode()


def take_connection(store: PostgresAddress) -> psycopg.Connection:
    """Return an idle connection of this process, or a new one. Raise StoreFailed if no server answers in time."""
    while True:
        with _lock:
            idle = _idle.get((os.getpid(), store.url))
            connection = idle.pop() if idle else None
        if connection is None:
            return wait_for_connection(store)
        # An idle connection has nothing to read, unless the server has closed it.
        if not connection.closed and not select.select([connection.pgconn.socket], [], [], 0)[0]:
            return connection
        connection.close()


def _keep_connection(store: PostgresAddress, connection: psycopg.Connection) -> None:
    """Keep a connection for later use, or close it if enough connections are idle."""
    with _lock:
        idle = _idle.setdefault((os.getpid(), store.url), [])
        if not connection.closed and len(idle) < MOST_IDLE:
            idle.append(connection)
            return
    connection.close()


@contextmanager
def borrow_connection(store: PostgresAddress) -> Iterator[psycopg.Connection]:
    """Yield a connection for a few statements, then keep it open for reuse. If the block fails, close it."""
    connection = take_connection(store)
    try:
        yield connection
    except BaseException:
        connection.close()
        raise
    _keep_connection(store, connection)


def wait_for_connection(store: PostgresAddress) -> psycopg.Connection:
    """Connect to a store. If this process has connected to it before, wait up to AWAY_SECONDS for the server.

    Raise StoreFailed if the connection fails.
    """
    give_up = time.monotonic() + (AWAY_SECONDS if store in _known else 0)
    while True:
        try:
            return connect(store)
        except psycopg.OperationalError as error:
            if time.monotonic() > give_up or not is_server_away(error):
                raise explain_error(store, error) from error
            time.sleep(RETRY_SECONDS)


def expect_server(store: PostgresAddress) -> None:
    """Make this process wait for the store's server if it is unavailable, even before the first connection."""
    _known.add(store)


def connect(store: PostgresAddress) -> psycopg.Connection:
    """Connect to a store without retrying, and create or migrate its schema if needed."""
    connection = connect_to_database(store)
    try:
        connection.adapters.register_dumper(bool, _FlagDumper)
        require_current_schema(connection, store)
    except BaseException:
        connection.close()
        raise
    _known.add(store)
    return connection


def read_postgres_version(store: PostgresAddress) -> int:
    """Return the version of the store in a database, or 0 if there is none. The database is not changed."""
    with translate_postgres_errors(store), closing(connect_to_database(store)) as connection:
        return read_schema_version(connection)


def connect_to_database(store: PostgresAddress) -> psycopg.Connection:
    """Connect to a store's database without retrying. The database need not contain a store yet."""
    return psycopg.connect(
        store.url,
        autocommit=True,
        **build_connection_options(
            store,
            {
                "search_path": SCHEMA,
                "synchronous_commit": "on",
                "lock_timeout": f"{LOCK_SECONDS:.0f}s",
                "podium.host": socket.gethostname(),
            },
        ),
    )


class _FlagDumper(Int2Dumper):
    """Writes True and False as 1 and 0, since flags are numbers in SQLite."""

    def dump(self, obj: bool) -> bytes:
        return b"1" if obj else b"0"


def is_server_away(error: psycopg.Error) -> bool:
    """Return whether an error means that the server is not running, is still starting or has closed the connection."""
    if error.sqlstate is None:
        # An error while connecting often has no SQLSTATE. Waiting does not help if the message has one of these words.
        return not any(word in str(error) for word in ("password", "certificate", "does not support SSL"))
    return error.sqlstate in ("57P01", "57P02", "57P03")


@contextmanager
def translate_postgres_errors(store: PostgresAddress) -> Iterator[None]:
    """Translate PostgreSQL's errors into LeaseLost and StoreFailed."""
    try:
        yield
    except psycopg.Error as error:
        raise explain_error(store, error) from error


def explain_error(store: PostgresAddress, error: psycopg.Error) -> StoreFailed:
    """Return the error to raise for a PostgreSQL error."""
    said = " ".join(str(error).split()).rstrip(".")
    if error.sqlstate == "PD001":
        run = error.diag.message_primary
        return LeaseLost(f"run {run} was taken over by another process; this process can no longer write to it")
    if error.sqlstate == "PD002":
        return build_gap_error(str(error.diag.message_primary))
    if isinstance(error, psycopg.errors.UniqueViolation):
        return LeaseLost(f"another process has taken over the run; this process can no longer write to it ({said})")
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return StoreFailed(f"the login for {store} is not allowed to do this ({said}); ask the owner of the database")
    if isinstance(error, psycopg.errors.DiskFull):
        return StoreFailed(f"cannot write to {store}: the server's disk is full; free some space and resume")
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and is_server_away(error):
        return StoreUnreachable(f"cannot reach the store {store} ({said}); start the server, or correct the address")
    return StoreFailed(f"PostgreSQL failed on {store}: {said}")


@atexit.register
def close_idle_connections() -> None:
    """Close the idle connections of this process."""
    with _lock:
        idle = [one for (pid, _), kept in _idle.items() if pid == os.getpid() for one in kept]
        _idle.clear()
    for connection in idle:
        with suppress(psycopg.Error):
            connection.close()
