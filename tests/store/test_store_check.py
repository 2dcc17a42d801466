"""Checks of a whole store: damage is found and named, and nothing else is called damage."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from podium.store.progress_files import Progress, record_progress
from podium.store.run_leases import OwnerId, register_owner
from podium.store.sql_connection import SqlValue
from podium.store.sqlite.schema import MIGRATIONS
from podium.store.store_check import check_store, migrate_store, read_version
from podium.store.store_connection import open_connection
from podium.values.errors import StoreFailed
from podium.values.store_address import StoreAddress

from .test_group_rows import record_runs


def execute(store: StoreAddress, sql: str, *values: SqlValue) -> None:
    with closing(open_connection(store, create=False)) as connection:
        connection.execute(sql, values)


async def test_an_intact_store_has_no_problems(address: StoreAddress) -> None:
    await record_runs(address, "a", "b")
    await record_runs(address, "w", parent="a", is_over=False)

    result = check_store(address)

    assert (result.runs, result.entries, result.problems, result.notes) == (3, 5, [], [])


async def test_a_changed_entry_is_damage(address: StoreAddress) -> None:
    await record_runs(address, "a", "b")
    execute(address, "DROP TRIGGER entry_stays" + ("" if isinstance(address, Path) else " ON entry"))
    try:
        execute(address, "UPDATE entry SET line = ? WHERE run = 'a' AND seq = 2", b"{}")
        result = check_store(address)
    finally:
        if not isinstance(address, Path):
            execute(
                address,
                "CREATE TRIGGER entry_stays BEFORE UPDATE ON entry FOR EACH ROW EXECUTE FUNCTION refuse_entry_change()",
            )

    assert result.problems == ["run a has been altered or damaged: entry 2 was changed after it was written"]


async def test_entries_without_their_run_are_damage(address: StoreAddress) -> None:
    await record_runs(address, "a")
    execute(address, "DELETE FROM run WHERE id = 'a'")

    assert check_store(address).problems == ["the entries of run a are in the store, but the run itself is not"]


async def test_a_run_that_only_its_progress_file_knows_is_damage(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    await record_runs(store, "a")
    record_progress(store, "lost", Progress(3, b"\0" * 32))

    assert check_store(store).problems == ["run lost was written to the store but is no longer there"]


async def test_dead_owners_and_rows_that_belong_to_no_run_are_only_noted(address: StoreAddress) -> None:
    await record_runs(address, "a", is_over=False)
    with closing(open_connection(address, create=False)) as connection:
        register_owner(connection, OwnerId(id="gone"))
        connection.execute("UPDATE owner SET pid = 7, until = 0 WHERE id = 'gone'")
        connection.execute("UPDATE run SET owner = 'gone'")
        connection.execute("INSERT INTO mail (run, ref, at, line) VALUES ('nobody', 'r', 0.0, ?)", (b"{}",))

    result = check_store(address)

    assert result.problems == []
    [owner, mail] = result.notes
    assert "run a belongs to process 7" in owner
    assert "podium resume a" in owner
    assert mail == "rows in the table mail that do not belong to any run: 1; they have no effect"


def test_a_store_is_created_and_migrated_once(tmp_path: Path) -> None:
    store = tmp_path / "s.db"
    assert read_version(store) == 0
    assert not store.exists()

    assert len(migrate_store(store)) == len(MIGRATIONS) == read_version(store)
    assert migrate_store(store) == []


def test_a_newer_store_is_refused(address: StoreAddress) -> None:
    migrate_store(address)
    newer = "INSERT INTO schema_version (number, name, release) VALUES (99, 'later', '9')"
    execute(address, "PRAGMA user_version = 99" if isinstance(address, Path) else newer)
    try:
        assert read_version(address) == 99
        with pytest.raises(StoreFailed, match="this is Podium"):
            from podium.store.postgres.connection import close_idle_connections

            close_idle_connections()
            check_store(address)
    finally:
        if not isinstance(address, Path):
            import psycopg

            with closing(psycopg.connect(address.url, autocommit=True)) as connection:
                connection.execute("DELETE FROM podium.schema_version WHERE number = 99")
