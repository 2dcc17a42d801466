"""Create and migrate the schema `podium` of a PostgreSQL store, with the numbered SQL files in `migrations`."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import NamedTuple

import psycopg

from ... import __version__
from ...values.errors import StoreFailed
from ...values.store_address import PostgresAddress

SCHEMA = "podium"
MIGRATION_LOCK = 0x506F6469
"""The key of the advisory lock that a process holds while it migrates the schema: "Podi" in ASCII."""


class Migration(NamedTuple):
    """A migration: its number, its name and its SQL."""

    number: int
    name: str
    sql: str


@cache
def load_migrations() -> tuple[Migration, ...]:
    """Return all migrations, in order."""
    found = sorted(files(__package__).joinpath("migrations").iterdir(), key=lambda file: file.name)
    named = [(file.name.removesuffix(".sql").partition("_"), file) for file in found if file.name.endswith(".sql")]
    return tuple(Migration(int(number), name, file.read_text("utf-8")) for (number, _, name), file in named)


def require_current_schema(connection: psycopg.Connection, store: PostgresAddress) -> None:
    """Create or migrate the schema if needed.

    Raise StoreFailed if a newer Podium has migrated it, or if it must be migrated and the login cannot do that.
    """
    known = load_migrations()[-1].number
    version = read_schema_version(connection)
    if version > known:
        raise StoreFailed(
            f"{store} was migrated by a newer Podium (store version {version}); this is Podium {__version__}, which "
            f"supports versions up to {known}; update it with pip install --upgrade podium"
        )
    if version < known:
        try:
            migrate_schema(connection)
        except psycopg.errors.InsufficientPrivilege as error:
            user = connection.info.user
            raise StoreFailed(
                f"{store} has store version {version}; this is Podium {__version__}, which needs version {known}, and "
                f"the login {user!r} cannot migrate the store; open the store once as the owner of the database, for "
                "example with podium ps"
            ) from error


def read_schema_version(connection: psycopg.Connection) -> int:
    """Return the number of the newest migration applied to the database, or 0 if it has no store."""
    try:
        found = connection.execute(f"SELECT max(number) FROM {SCHEMA}.schema_version").fetchone()
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        return 0
    return 0 if found is None or found[0] is None else int(found[0])


def migrate_schema(connection: psycopg.Connection) -> None:
    """Apply the migrations that the database does not have yet, all in one transaction."""
    connection.execute("SELECT pg_advisory_lock(%s)", (MIGRATION_LOCK,))
    try:
        # Read again under the lock: another process may have migrated the store in the meantime.
        version = read_schema_version(connection)
        with connection.transaction():
            if version == 0:
                connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
                connection.execute(
                    f"CREATE TABLE {SCHEMA}.schema_version (number integer PRIMARY KEY, name text NOT NULL,"
                    " release text NOT NULL, applied timestamptz NOT NULL DEFAULT now())"
                )
            for migration in load_migrations():
                if migration.number > version:
                    connection.execute(migration.sql.encode())
                    connection.execute(
                        f"INSERT INTO {SCHEMA}.schema_version (number, name, release) VALUES (%s, %s, %s)",
                        (migration.number, migration.name, __version__),
                    )
    finally:
        connection.execute("SELECT pg_advisory_unlock(%s)", (MIGRATION_LOCK,))
