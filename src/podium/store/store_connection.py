"""Open a connection to a store, in the database that its address names."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from ..values.store_address import StoreAddress
from .sql_connection import SqlConnection
from .sqlite.commit import SqliteCommitter
from .sqlite.connection import open_sqlite, open_sqlite_for_reading, translate_sqlite_errors
from .store_write import Committer


def open_connection(store: StoreAddress, *, create: bool) -> SqlConnection:
    """Open a connection to a store, and migrate the store if needed.

    If there is no store, it is created. Without `create`, StoreFailed is raised instead.
    """
    assert isinstance(store, Path)
    return open_sqlite(store, create=create)


def open_for_reading(store: StoreAddress) -> SqlConnection:
    """Open a connection for reading. An older store is migrated first.

    Raise StoreFailed if there is no store, and StoreCorrupt if the store has lost its content.
    """
    assert isinstance(store, Path)
    return open_sqlite_for_reading(store)


def open_committer(store: StoreAddress) -> Committer:
    """Open the part of a store that commits the writes of this process, and create the store if there is none."""
    assert isinstance(store, Path)
    return SqliteCommitter(store)


def translate_errors(store: StoreAddress) -> AbstractContextManager[None]:
    """Translate the errors of the store's database into LeaseLost, StoreCorrupt and StoreFailed."""
    assert isinstance(store, Path)
    return translate_sqlite_errors(store)
