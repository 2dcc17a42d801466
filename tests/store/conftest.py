from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from podium.store.postgres.connection import close_idle_connections
from podium.store.store_connection import open_connection
from podium.testing.postgres_cluster import PostgresCluster
from podium.values.store_address import PostgresAddress, StoreAddress


@pytest.fixture(scope="session")
def store_database(postgres_cluster: PostgresCluster) -> Iterator[str]:
    """The URL of a database that the tests of the store share. Each test finds it empty."""
    name = f"store_{uuid4().hex}"
    yield postgres_cluster.create_database(name)
    close_idle_connections()
    postgres_cluster.drop_database(name)


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> StoreAddress:
    """A store that is empty, in each of the databases that can hold one."""
    if request.param == "sqlite":
        return tmp_path / "s.db"
    store = PostgresAddress(request.getfixturevalue("store_database"), tmp_path / "runtime")
    empty_store(store)
    return store


def empty_store(store: PostgresAddress) -> None:
    """Delete everything in a store, as if it were new."""
    open_connection(store, create=True).close()
    with closing(psycopg.connect(store.url, autocommit=True)) as connection:
        found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'podium'").fetchall()
        tables = {name for (name,) in found} - {"schema_version", "run_group", "last_group"}
        connection.execute(f"TRUNCATE {', '.join(f'podium.{name}' for name in tables)} RESTART IDENTITY".encode())
        connection.execute("DELETE FROM podium.run_group WHERE id > 1")
        connection.execute("UPDATE podium.run_group SET name = 'default', position = NULL, pinned = 0, archived = 0")
        connection.execute("UPDATE podium.last_group SET id = 1")
