"""Open a connection to a store, in the database that its address specifies."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from ..values.errors import StoreFailed
from ..values.fleet_job import format_install_commands
from ..values.store_address import StoreAddress
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
