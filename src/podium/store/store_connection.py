"""Open a connection to a store, and lock the store for tasks that only one process can do at a time."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from functools import partial
from pathlib import Path

from anyio import sleep, to_thread

from ..system.file_lock import try_lock_descriptor
from ..system.owned_files import make_private_folder
from ..values.errors import StoreFailed
from ..values.fleet_job import format_install_commands
from ..values.store_address import StoreAddress, make_local_path
from .sql_connection import LOCK_SECONDS, SqlConnection
from .sqlite.commit import SqliteCommitter
from .sqlite.connection import open_sqlite, open_sqlite_for_reading, translate_sqlite_errors
from .store_write import Committer

MOST_SECONDS = 20 * LOCK_SECONDS
"""How long a process waits for a lock before it gives up."""


def open_connection(store: StoreAddress, *, create: bool) -> SqlConnection:
    """Open a connection to a store, and migrate the store if needed.

    A missing SQLite file is created if `create` is true; otherwise, StoreFailed is raised. A PostgreSQL database must
    exist; its schema is created if needed.
    """
    if isinstance(store, Path):
        return open_sqlite(store, create=create)
    require_postgres_packages()
    from .postgres.connection import PostgresConnection  # imported here to keep start-up fast

    return PostgresConnection(store)


def open_for_reading(store: StoreAddress) -> SqlConnection:
    """Open a connection for reading. An older store is migrated first.

    Raise StoreFailed if there is no SQLite file or the PostgreSQL server cannot be used, and StoreCorrupt if a SQLite
    file has lost its content.
    """
    return open_sqlite_for_reading(store) if isinstance(store, Path) else open_connection(store, create=False)


def open_committer(store: StoreAddress, owner: str) -> Committer:
    """Open the committer for a process's writes, and create the store if there is none.

    `owner` is the id that identifies the process as an owner of runs.
    """
    if isinstance(store, Path):
        return SqliteCommitter(store)
    require_postgres_packages()
    from .postgres.commit import PostgresCommitter  # imported here to keep start-up fast

    return PostgresCommitter(store, owner)


def expect_store(store: StoreAddress) -> None:
    """Make this process wait for the store's server if the server is unavailable.

    Call this only if the parent process has connected to the server: the server then exists and is probably restarting.
    """
    if isinstance(store, Path):
        return
    require_postgres_packages()
    from .postgres.connection import expect_server  # imported here to keep start-up fast

    expect_server(store)


def translate_errors(store: StoreAddress) -> AbstractContextManager[None]:
    """Translate errors from the store's database into LeaseLost, StoreCorrupt and StoreFailed."""
    if isinstance(store, Path):
        return translate_sqlite_errors(store)
    from .postgres.connection import translate_postgres_errors  # imported here to keep start-up fast

    return translate_postgres_errors(store)


def has_current_tables(store: StoreAddress) -> bool:
    """Return whether a PostgreSQL store has the current schema, so that opening it changes nothing.

    For a SQLite store, return True. Raise StoreFailed if the server cannot be reached.
    """
    if isinstance(store, Path):
        return True
    require_postgres_packages()
    from .postgres.connection import read_postgres_version  # imported here to keep start-up fast
    from .postgres.schema import load_migrations

    return read_postgres_version(store) == load_migrations()[-1].number


def require_postgres_packages() -> None:
    """Raise StoreFailed if the packages for PostgreSQL are not installed."""
    try:
        import psycopg  # noqa: F401 - imported here because it is an extra
    except ImportError as error:
        raise StoreFailed(
            "a PostgreSQL store needs the packages in podium[fleet]; install them with "
            f"{format_install_commands('fleet')}"
        ) from error


@asynccontextmanager
async def hold_store_lock(store: StoreAddress, what: str, *, doing: str) -> AsyncIterator[None]:
    """Hold the lock named `what` until the block ends. The lock covers all processes and machines that use the store.

    Raise StoreFailed if another process holds the lock for too long. `doing` describes the work that the lock protects,
    for example `starting workers`; it is part of the error message.
    """
    if isinstance(store, Path):
        async with hold_lock(store, what, doing=doing):
            yield
        return
    connection = await to_thread.run_sync(partial(open_connection, store, create=True))
    try:
        await _acquire_advisory_lock(connection, store, what, doing)
        yield
    finally:
        # A connection that ends releases its locks, so nothing is left to do if this fails.
        with suppress(StoreFailed), translate_errors(store):
            connection.execute("SELECT pg_advisory_unlock(hashtextextended(?, 0))", (what,))
        connection.close()


async def _acquire_advisory_lock(connection: SqlConnection, store: StoreAddress, what: str, doing: str) -> None:
    def try_to_lock() -> bool:
        with translate_errors(store):
            query = "SELECT pg_try_advisory_lock(hashtextextended(?, 0))"
            return bool(connection.execute(query, (what,)).fetchone()[0])

    give_up = time.monotonic() + MOST_SECONDS
    while not await to_thread.run_sync(try_to_lock):
        if time.monotonic() > give_up:
            raise StoreFailed(
                f"another process that uses {store} has been {doing} for too long; end that process and try again"
            )
        await sleep(0.02)


@asynccontextmanager
async def hold_lock(store: StoreAddress, what: str, *, doing: str) -> AsyncIterator[int]:
    """Hold the lock named `what` on this machine until the block ends, and yield the descriptor of its file.

    Raise StoreFailed if another process holds the lock for too long. `doing` describes the work that the lock protects,
    for example `starting workers`; it is part of the error message.
    """
    name = make_local_path(store, f"{what}.lock")
    try:
        make_private_folder(name.parent)
        lock = os.open(name, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise StoreFailed(f"cannot open {name} ({error.strerror}); check its permissions") from error
    try:
        await _acquire_lock(lock, name, doing)
        yield lock
    finally:
        os.close(lock)


async def _acquire_lock(lock: int, name: Path, doing: str) -> None:
    give_up = time.monotonic() + MOST_SECONDS
    while True:
        if try_lock_descriptor(lock):
            return
        if time.monotonic() > give_up:
            raise StoreFailed(
                f"another process has been {doing} for too long and still holds the lock {name}; end that process and "
                "try again"
            )
        await sleep(0.02)
