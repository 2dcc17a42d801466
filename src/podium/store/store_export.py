"""Export a store, or one of its runs, to a store file, and remove a run that has ended.

Everything is read in one transaction, so the file shows the store at one point in time. The file does not contain the
index of entries, which can be computed again, or data about processes and machines: leases, hosts and the queue.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from ..values.errors import RunHeld
from ..values.event import ArtifactStored, decode_entry
from ..values.store_address import PostgresAddress, StoreAddress
from .progress_files import forget_progress
from .run_leases import OWNER_COLUMNS, Owner, make_owner
from .sql_connection import SqlConnection, SqlRow, SqlValue, read_transaction, write_transaction
from .store_connection import open_connection, open_for_reading, translate_errors
from .store_file import TABLES, write_store_file

TABLES_OF_RUN = ("entry", "mail", "attachment", "placement", "worker", "indexed_run")


PAGE_ROWS = {"entry": 500, "attachment": 4, "artifact": 50}
"""The number of rows to read at once from tables with large rows. For other tables, it is `MOST_PAGE_ROWS`."""
MOST_PAGE_ROWS = 1000
KEYS = {
    "run": ("created", "id"),
    "run_group": ("id",),
    "placement": ("run",),
    "worker": ("run",),
    "worktree": ("id",),
    "command_key": ("key",),
    "schedule": ("id",),
    "issue_claim": ("source", "issue"),
    "mail": ("id",),
    "attachment": ("run", "message", "digest"),
    "artifact": ("digest",),
}
"""The columns that order the rows of each table. Entries are in commit order."""
TABLES_OF_RUNS = ("run", "placement", "worker", "worktree", "entry", "mail", "attachment")


def export_store(
    store: StoreAddress,
    path: Path,
    *,
    is_skipping_running: bool,
    on_foreign: Callable[[list[str]], object] = lambda runs: None,
) -> list[str]:
    """Write everything in a store to a store file, and return the runs that were left out because they are running.

    A store file does not say who created a run, so unfinished runs that a person's login did not create are left out,
    too, and `on_foreign` is called with them. Raise RunHeld if any run is running, unless `is_skipping_running` is set.
    """
    with translate_errors(store), closing(open_for_reading(store)) as connection, read_transaction(connection):
        running = find_running(connection)
        if running and not is_skipping_running:
            run, owner = next(iter(running.items()))
            raise RunHeld(run, host=owner.host, pid=owner.pid)
        foreign = _find_unfinished_foreign_runs(connection, store)
        left_out = {*running, *foreign}
        with write_store_file(path) as writer:
            for table in TABLES:
                if table == "last_group":
                    writer.write_rows(table, [(connection.read_last_group_id(),)])
                else:
                    for page in _read_pages(connection, store, table):
                        writer.write_rows(table, _leave_out_runs(table, page, left_out))
    if foreign:
        on_foreign(foreign)
    return sorted(running)


def archive_run(store: StoreAddress, run: str, path: Path) -> None:
    """Write a run and everything that belongs to it to a store file."""
    with (
        translate_errors(store),
        closing(open_for_reading(store)) as connection,
        read_transaction(connection),
        write_store_file(path) as writer,
    ):
        for table in TABLES_OF_RUNS:
            column = "id" if table == "run" else "run"
            for page in _read_pages(connection, store, table, where=f"{column} = ?", values=(run,)):
                writer.write_rows(table, page)
        for digest in sorted(_find_artifacts(connection, "run = ?", run)):
            for page in _read_pages(connection, store, "artifact", where="digest = ?", values=(digest,)):
                writer.write_rows("artifact", page)


def find_running(connection: SqlConnection) -> dict[str, Owner]:
    """Return the runs that have not ended and that a live process owns."""
    found = connection.execute(
        f"SELECT run.id, {OWNER_COLUMNS} FROM run JOIN owner ON owner.id = run.owner WHERE NOT EXISTS"
        " (SELECT 1 FROM entry WHERE entry.run = run.id AND entry.kind = 'run_ended') ORDER BY run.id"
    ).fetchall()
    owners = {str(run): make_owner(*columns) for run, *columns in found}
    return {run: owner for run, owner in owners.items() if owner is not None and owner.is_alive}


def _find_unfinished_foreign_runs(connection: SqlConnection, store: StoreAddress) -> list[str]:
    """Return the runs that have not ended and that a person's login did not create, as far as is known."""
    if not isinstance(store, PostgresAddress):
        return []
    # A host can write entries after the end of a run, so only the last entry tells whether the run has ended.
    found = connection.execute(
        "SELECT id FROM run WHERE (login = '' OR is_host_login(login)) AND 'run_ended' IS DISTINCT FROM"
        " (SELECT kind FROM entry WHERE entry.run = run.id ORDER BY seq DESC LIMIT 1) ORDER BY created, id"
    )
    return [str(run) for (run,) in found]


def _find_artifacts(connection: SqlConnection, where: str, run: str) -> set[str]:
    """Return the digests of the artifacts of all runs that meet a condition on `run`."""
    found = connection.execute(f"SELECT line FROM entry WHERE {where} AND kind = 'artifact_stored'", (run,))
    events = (decode_entry(line).event for (line,) in found)
    return {event.digest for event in events if isinstance(event, ArtifactStored)}


def _read_pages(
    connection: SqlConnection, store: StoreAddress, table: str, *, where: str = "TRUE", values: Sequence[SqlValue] = ()
) -> Iterator[list[SqlRow]]:
    """Yield the rows of a table that meet a condition, in pages, without the columns used to order them."""
    keys = connection.entry_order if table == "entry" else KEYS[table]
    order, size = ", ".join(keys), PAGE_ROWS.get(table, MOST_PAGE_ROWS)
    source, names = table, list(TABLES[table])
    if table == "worktree":
        source = "worktree" if isinstance(store, Path) else "worktree_of_host"
        names[0] = f"'{_quote(socket.gethostname())}'" if isinstance(store, Path) else "host"
    columns = ", ".join((*keys, *names))
    last: SqlRow = ()
    while True:
        after = f" AND ({order}) > ({', '.join('?' * len(keys))})" if last else ""
        found = connection.execute(
            f"SELECT {columns} FROM {source} WHERE {where}{after} ORDER BY {order} LIMIT ?", (*values, *last, size)
        ).fetchall()
        yield [tuple(row[len(keys) :]) for row in found]
        if len(found) < size:
            return
        last = found[-1][: len(keys)]


def _leave_out_runs(table: str, rows: list[SqlRow], runs: Collection[str]) -> list[SqlRow]:
    """Return the rows that do not belong to these runs."""
    if not runs or table not in TABLES_OF_RUNS:
        return rows
    place = TABLES[table].index("id" if table == "run" else "run")
    return [row for row in rows if row[place] not in runs]


def _quote(text: str) -> str:
    return text.replace("'", "''")


def remove_run(store: StoreAddress, run: str) -> bool:
    """Remove a run in one transaction. Return False, and leave the database unchanged, if it has not ended."""
    with translate_errors(store), closing(open_connection(store, create=False)) as connection:
        connection.set_durable(True)
        # This lock keeps other processes from adding the run's entries to the index in the meantime.
        with write_transaction(connection, "entry_index"):
            if not _has_ended(connection, run):
                return False
            # Delete the progress file before the run: a progress file without a run means that the store has lost the
            # run.
            forget_progress(store, run)
            if isinstance(store, Path):
                with _record_newest_removal(connection):
                    _delete_rows(connection, run, "worktree")
            else:
                _delete_rows(connection, run, "worktree_of_host")
    return True


def _has_ended(connection: SqlConnection, run: str) -> bool:
    last = connection.execute("SELECT kind FROM entry WHERE run = ? ORDER BY seq DESC LIMIT 1", (run,)).fetchone()
    return last is not None and last[0] == "run_ended"


@contextmanager
def _record_newest_removal(connection: SqlConnection) -> Iterator[None]:
    """If the block removes the newest entry, record that, because SQLite reuses its row id for the next entry."""

    def read_last() -> int:
        return int(connection.execute("SELECT coalesce(max(rowid), 0) FROM entry").fetchone()[0])

    before = read_last()
    yield
    if (last := read_last()) < before:
        # The new removal replaces each earlier one with the same or a higher `last`, because it has also removed
        # everything that was written since then.
        connection.execute("DELETE FROM entry_removal WHERE last >= ?", (last,))
        connection.execute("INSERT INTO entry_removal (last) VALUES (?)", (last,))


def _delete_rows(connection: SqlConnection, run: str, worktrees: str) -> None:
    _delete_artifacts(connection, run)
    connection.execute(
        "DELETE FROM indexed_entry WHERE run IN (SELECT id FROM indexed_run WHERE indexed_run.run = ?)", (run,)
    )
    for table in TABLES_OF_RUN:
        connection.execute(f"DELETE FROM {table} WHERE run = ?", (run,))
    connection.execute(f"DELETE FROM {worktrees} WHERE run = ? AND state = 'gone'", (run,))
    connection.execute("DELETE FROM run WHERE id = ?", (run,))


def _delete_artifacts(connection: SqlConnection, run: str) -> None:
    """Delete the artifacts that no other run has stored."""
    digests = _find_artifacts(connection, "run = ?", run)
    if digests:
        unused = digests - _find_artifacts(connection, "run <> ?", run)
        connection.executemany("DELETE FROM artifact WHERE digest = ?", [(digest,) for digest in sorted(unused)])
