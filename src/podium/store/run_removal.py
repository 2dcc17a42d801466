"""Remove a run that has ended from a store, with everything that belongs only to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from ..values.store_address import StoreAddress
from .progress_files import forget_progress
from .sql_connection import SqlConnection, write_transaction
from .store_connection import open_connection, translate_errors
from .store_export import find_artifacts

TABLES_OF_RUN = ("entry", "mail", "attachment", "placement", "worker", "indexed_run")


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
    digests = find_artifacts(connection, "run = ?", run)
    if digests:
        unused = digests - find_artifacts(connection, "run <> ?", run)
        connection.executemany("DELETE FROM artifact WHERE digest = ?", [(digest,) for digest in sorted(unused)])
