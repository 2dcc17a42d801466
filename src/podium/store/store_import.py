"""Import a store file into a store: all of it in one transaction, or nothing.

Runs that the store already has stay as they are. A group is merged with the group for the same repository or team.
"""

from __future__ import annotations

import socket
from contextlib import closing
from dataclasses import dataclass, field
from itertools import groupby, islice
from pathlib import Path
from typing import Any

from ..values.store_address import StoreAddress
from .progress_files import Progress, record_progress
from .sql_connection import SqlConnection, write_transaction
from .store_connection import open_connection, translate_errors
from .store_file import TABLES, read_store_file

BATCH_ROWS = 500
GROUP_COLUMNS = ("name", "position", "pinned", "archived")


@dataclass(slots=True, kw_only=True)
class ImportReport:
    """The runs that an import added or found in the store, and the number of skipped worktrees on other machines."""

    added: set[str] = field(default_factory=set)
    existing: set[str] = field(default_factory=set)
    foreign_worktrees: int = 0


def import_store(store: StoreAddress, path: Path) -> ImportReport:
    """Import the runs of a store file, with everything that belongs to them. Skip runs that the store already has.

    Raise Mistake or StoreCorrupt, and import nothing, if the file is not a store file or is damaged.
    """
    for _ in read_store_file(path):
        pass  # A damaged file is refused before a store is created or locked.
    with translate_errors(store), closing(open_connection(store, create=True)) as connection:
        connection.set_durable(True)
        with write_transaction(connection, "groups"):
            importing = _Import(connection, store)
            for table, rows in groupby(read_store_file(path), key=lambda row: row.table):
                while batch := list(islice(rows, BATCH_ROWS)):
                    importing.add_rows(table, [row.values for row in batch])
    if isinstance(store, Path):
        for run, progress in importing.progress.items():
            record_progress(store, run, progress)
    return importing.report


class _Import:
    """Adds the rows of a store file to a store, within a transaction."""

    def __init__(self, connection: SqlConnection, store: StoreAddress) -> None:
        self.report = ImportReport()
        self.progress: dict[str, Progress] = {}
        self._connection = connection
        self._store = store
        self._known = {str(row[0]) for row in connection.execute("SELECT id FROM run")}
        self._is_new = not self._known and connection.read_last_group_id() <= 1
        self._groups: dict[int, int] = {}

    def add_rows(self, table: str, rows: list[tuple[Any, ...]]) -> None:
        """Add rows of one table, except those of runs that the store already has."""
        match table:
            case "run":
                self._add_runs(rows)
            case "last_group":
                if self._is_new:
                    self._record_last_group(int(rows[0][0]))
            case "run_group":
                for row in rows:
                    self._add_group(*row)
            case "command_key" | "schedule" | "issue_claim" | "artifact":
                self._insert(table, TABLES[table], rows, " ON CONFLICT DO NOTHING")
            case "worktree":
                self._add_worktrees(self._select_added(table, rows))
            case "placement":
                mapped = [(run, self._groups.get(place), *rest) for run, place, *rest in rows]
                self._insert(table, TABLES[table], self._select_added(table, mapped))
            case _:
                added = self._select_added(table, rows)
                self._insert(table, TABLES[table], added)
                if table == "entry":
                    self._note_progress(added)

    def _add_runs(self, rows: list[tuple[Any, ...]]) -> None:
        self.report.existing |= {row[0] for row in rows} & self._known
        new = [row for row in rows if row[0] not in self._known]
        self._insert("run", TABLES["run"], new)
        self.report.added |= {row[0] for row in new}

    def _select_added(self, table: str, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        place = TABLES[table].index("run")
        # A worktree does not have to belong to a run.
        return [row for row in rows if row[place] in self.report.added or (table == "worktree" and not row[place])]

    def _add_group(self, id: int, kind: str, repo: str, team: str, *settings: Any) -> None:
        """Add a group, or find the existing group for the same repository or team."""
        found = self._connection.execute(
            "SELECT id FROM run_group WHERE kind = ? AND repo = ? AND team = ?", (kind, repo, team)
        ).fetchone()
        if found is None:
            new = id if self._is_new else self._connection.read_last_group_id() + 1
            self._insert("run_group", TABLES["run_group"], [(new, kind, repo, team, *settings)])
        else:
            new = int(found[0])
            if self._is_new:
                columns = ", ".join(f"{column} = ?" for column in GROUP_COLUMNS)
                self._connection.execute(f"UPDATE run_group SET {columns} WHERE id = ?", (*settings, new))
        self._groups[id] = new

    def _record_last_group(self, id: int) -> None:
        """Record the highest id that a group has ever had, so that no id is used again."""
        if isinstance(self._store, Path):
            update = "UPDATE sqlite_sequence SET seq = ? WHERE name = 'run_group' AND seq < ?"
        else:
            update = "UPDATE last_group SET id = ? WHERE id < ?"
        self._connection.execute(update, (id, id))

    def _add_worktrees(self, rows: list[tuple[Any, ...]]) -> None:
        table, columns = "worktree_of_host", TABLES["worktree"]
        if isinstance(self._store, Path):
            # The worktrees of a SQLite store are on its own machine.
            here = [row[1:] for row in rows if row[0] == socket.gethostname()]
            self.report.foreign_worktrees += len(rows) - len(here)
            table, columns, rows = "worktree", columns[1:], here
        self._insert(table, columns, rows, " ON CONFLICT DO NOTHING")

    def _note_progress(self, rows: list[tuple[Any, ...]]) -> None:
        for run, seq, _, _, _, _, digest in rows:
            self.progress[run] = Progress(seq, digest)

    def _insert(self, table: str, columns: tuple[str, ...], rows: list[tuple[Any, ...]], conflict: str = "") -> None:
        if rows:
            marks = ", ".join("?" * len(columns))
            self._connection.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks}){conflict}", rows)
