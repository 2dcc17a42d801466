"""Check a store: verify its file and the hash chain of every timeline, and find rows that do not belong to any run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from ..core.journal_rows import JournalRow, find_chain_break
from ..values.errors import StoreCorrupt
from ..values.store_address import StoreAddress
from .progress_files import find_lost_entries, list_recorded_runs, read_progress
from .reader import StoreReader
from .run_leases import OWNER_COLUMNS, make_owner
from .sql_connection import SqlConnection
from .sqlite.connection import read_sqlite_version
from .sqlite.schema import MIGRATIONS
from .store_connection import open_connection, open_for_reading, require_postgres_packages, translate_errors

LEFT_OVER = ("mail", "attachment", "placement", "worker", "indexed_run")
"""The tables to search for leftover rows, that is, rows whose run no longer exists."""


@dataclass(slots=True, kw_only=True)
class StoreCheck:
    """The result of a check. A problem means that the store is damaged; a note does not."""

    runs: int = 0
    entries: int = 0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def check_store(store: StoreAddress) -> StoreCheck:
    """Check everything in a store that has the current version. The store is not changed."""
    result = StoreCheck()
    with StoreReader(store) as reader:
        runs = reader.list_run_ids()
        for run in runs:
            rows = reader.read_rows(run)
            result.runs += 1
            result.entries += len(rows)
            if not rows:
                result.notes.append(f"run {run} has no entries: its process ended before it wrote the first one")
            elif (damage := _find_damage_or_error(store, run, rows)) is not None:
                result.problems.append(f"run {run} has been altered or damaged: {damage}")
    if isinstance(store, Path):
        known = set(runs)
        lost = [run for run in list_recorded_runs(store) if run not in known]
        result.problems += [f"run {run} was written to the store but is no longer there" for run in sorted(lost)]
    with translate_errors(store), closing(open_for_reading(store)) as connection:
        if isinstance(store, Path):
            result.problems += [str(row[0]) for row in connection.execute("PRAGMA quick_check") if row[0] != "ok"]
        result.problems += _find_entries_without_run(connection)
        result.notes += _find_dead_owners(connection)
        result.notes += _find_left_over_rows(connection)
    return result


def find_damage(store: StoreAddress, run: str, rows: Sequence[JournalRow]) -> str | None:
    """Return a clause that describes a run's first changed or lost entry, or None if the run is intact.

    Raise StoreCorrupt if an entry cannot be read.
    """
    chain_break = find_chain_break(rows)
    progress = read_progress(store, run)
    return find_lost_entries(progress, rows) if chain_break is None and progress is not None else chain_break


def _find_damage_or_error(store: StoreAddress, run: str, rows: Sequence[JournalRow]) -> str | None:
    try:
        return find_damage(store, run, rows)
    except StoreCorrupt as error:
        return str(error)


def _find_entries_without_run(connection: SqlConnection) -> Iterator[str]:
    found = connection.execute(
        "SELECT DISTINCT run FROM entry WHERE NOT EXISTS (SELECT 1 FROM run WHERE run.id = entry.run) ORDER BY run"
    )
    for (run,) in found:
        yield f"the entries of run {run} are in the store, but the run itself is not"


def _find_dead_owners(connection: SqlConnection) -> Iterator[str]:
    found = connection.execute(
        f"SELECT run.id, {OWNER_COLUMNS} FROM run JOIN owner ON owner.id = run.owner WHERE COALESCE("
        "(SELECT kind FROM entry WHERE entry.run = run.id ORDER BY seq DESC LIMIT 1), '')"
        " NOT IN ('run_ended', 'run_paused') ORDER BY run.id"
    ).fetchall()
    for run, *columns in found:
        owner = make_owner(*columns)
        if owner is not None and not owner.is_alive:
            yield (
                f"run {run} belongs to process {owner.pid} on {owner.host}, but that process is gone; "
                f"continue the run with: podium resume {run}"
            )


def _find_left_over_rows(connection: SqlConnection) -> Iterator[str]:
    for table in LEFT_OVER:
        [count] = connection.execute(
            f"SELECT count(*) FROM {table} WHERE NOT EXISTS (SELECT 1 FROM run WHERE run.id = {table}.run)"
        ).fetchone()
        if count:
            yield f"rows in the table {table} that do not belong to any run: {count}; they have no effect"


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
