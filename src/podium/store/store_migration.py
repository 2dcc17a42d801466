"""Find out which version a store has, and migrate it."""

from __future__ import annotations

from pathlib import Path

from ..values.store_address import StoreAddress
from .sqlite.connection import read_sqlite_version
from .sqlite.schema import MIGRATIONS
from .store_connection import open_connection, require_postgres_packages


def read_version(store: StoreAddress) -> int:
    """Return the version of a store, or 0 if the store has not been created yet. The store is not changed."""
    if isinstance(store, Path):
        return read_sqlite_version(store)
    require_postgres_packages()
    from .postgres.connection import read_postgres_version  # imported here to keep start-up fast

    return read_postgres_version(store)


def name_migrations(store: StoreAddress) -> list[str]:
    """Return the names of all migrations for this kind of store in this version of Podium, in order."""
    if isinstance(store, Path):
        return [str(number) for number in range(1, len(MIGRATIONS) + 1)]
    from .postgres.schema import load_migrations  # imported here to keep start-up fast

    return [f"{migration.number} ({migration.name})" for migration in load_migrations()]


def migrate_store(store: StoreAddress) -> list[str]:
    """Create a store or apply the migrations that it lacks, and return their names.

    Raise StoreFailed if a newer Podium has migrated it, or if it cannot be written.
    """
    before = read_version(store)
    open_connection(store, create=True).close()
    return name_migrations(store)[before:]
