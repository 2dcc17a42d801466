"""Read and write store files, which contain exported runs and everything that belongs to the runs.

A store file is a gzip file of JSON lines. The first line names the format and the columns of each table. Each further
line is a row: an array that begins with the name of its table. The last line contains the number of rows and the
SHA-256 of all lines before it, so that a truncated or changed file is detected. Binary values are in Base64.

An import is one transaction. Runs that the store already has stay as they are. A group is merged with the group for the
same repository or team.
"""

from __future__ import annotations

import socket
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from gzip import GzipFile
from hashlib import sha256
from itertools import groupby, islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from .. import __version__
from ..system.whole_file import open_replacement
from ..values.errors import Mistake, StoreCorrupt
from ..values.store_address import StoreAddress
from .progress_files import Progress, record_progress
from .sql_connection import SqlConnection, SqlRow, SqlValue, write_transaction
from .store_connection import open_connection, translate_errors

BATCH_ROWS = 500
GROUP_COLUMNS = ("name", "position", "pinned", "archived")


@dataclass(slots=True, kw_only=True)
class ImportReport:
    """The runs that an import added or found in the store, and the number of skipped worktrees on other machines."""

    added: set[str] = field(default_factory=set)
    existing: set[str] = field(default_factory=set)
    foreign_worktrees: int = 0


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

    def add_rows(self, table: str, rows: list[SqlRow]) -> None:
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

    def _add_runs(self, rows: list[SqlRow]) -> None:
        self.report.existing |= {row[0] for row in rows} & self._known
        new = [row for row in rows if row[0] not in self._known]
        self._insert("run", TABLES["run"], new)
        self.report.added |= {row[0] for row in new}

    def _select_added(self, table: str, rows: list[SqlRow]) -> list[SqlRow]:
        place = TABLES[table].index("run")
        # A worktree does not have to belong to a run.
        return [row for row in rows if row[place] in self.report.added or (table == "worktree" and not row[place])]

    def _add_group(self, id: int, kind: str, repo: str, team: str, *settings: SqlValue) -> None:
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

    def _add_worktrees(self, rows: list[SqlRow]) -> None:
        table, columns = "worktree_of_host", TABLES["worktree"]
        if isinstance(self._store, Path):
            # The worktrees of a SQLite store are on its own machine.
            here = [row[1:] for row in rows if row[0] == socket.gethostname()]
            self.report.foreign_worktrees += len(rows) - len(here)
            table, columns, rows = "worktree", columns[1:], here
        self._insert(table, columns, rows, " ON CONFLICT DO NOTHING")

    def _note_progress(self, rows: list[SqlRow]) -> None:
        for run, seq, _, _, _, _, digest in rows:
            self.progress[run] = Progress(seq, digest)

    def _insert(self, table: str, columns: tuple[str, ...], rows: list[SqlRow], conflict: str = "") -> None:
        if rows:
            marks = ", ".join("?" * len(columns))
            self._connection.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks}){conflict}", rows)


FORMAT = 1
TABLES: dict[str, tuple[str, ...]] = {
    "run": ("id", "created", "epoch"),
    "last_group": ("id",),
    "run_group": ("id", "kind", "repo", "team", "name", "position", "pinned", "archived"),
    "placement": ("run", "place", "name", "position", "pinned", "archived", "manual"),
    "worker": ("run", "root", "branch", "is_open"),
    "worktree": (
        *("host", "path", "repository", "branch", "base", "run", "git_dir", "is_new_branch", "state", "created"),
        "size",
    ),
    "command_key": ("key", "digest", "id", "at", "reply"),
    "schedule": (
        *("id", "cron", "zone", "agent", "request", "root", "host", "created", "is_paused", "next_at", "last_at"),
        *("last_run", "missed", "missed_at", "error"),
    ),
    "issue_claim": (
        *("source", "issue", "token", "claimed", "root", "title", "body", "author", "url", "state", "agent", "branch"),
        *("note", "comment", "comment_at", "comment_tries", "comment_url"),
    ),
    "entry": ("run", "seq", "epoch", "kind", "key", "line", "hash"),
    "mail": ("run", "ref", "at", "line", "taken"),
    "attachment": ("run", "message", "digest", "data"),
    "artifact": ("digest", "data"),
}
"""The columns of each table in a store file, in the order in which the tables are written."""
BINARY_COLUMNS = frozenset(("line", "hash", "data", "reply"))


class FileRow(NamedTuple):
    """A row of a table, with its values in the order of the columns in TABLES."""

    table: str
    values: SqlRow


class _Header(Struct):
    """The first line of a store file."""

    podium_store: int
    release: str
    tables: dict[str, tuple[str, ...]]


class StoreFileWriter:
    """Writes the lines of a store file."""

    def __init__(self, file: GzipFile) -> None:
        self._file = file
        self._digest = sha256()
        self._rows = 0
        self._write_line(_Header(podium_store=FORMAT, release=__version__, tables=TABLES))

    def write_rows(self, table: str, rows: Sequence[SqlRow]) -> None:
        """Write rows of a table. The values of each row are in the order of the columns in TABLES."""
        is_binary = [column in BINARY_COLUMNS for column in TABLES[table]]
        for row in rows:
            values = [
                b64encode(value).decode() if binary and value is not None else value
                for binary, value in zip(is_binary, row, strict=True)
            ]
            self._write_line([table, *values])
        self._rows += len(rows)

    def write_end(self) -> None:
        """Write the last line."""
        self._write_line(["end", self._rows, self._digest.hexdigest()])

    def _write_line(self, content: object) -> None:
        line = msgspec.json.encode(content) + b"\n"
        self._digest.update(line)
        self._file.write(line)


@contextmanager
def write_store_file(path: Path) -> Iterator[StoreFileWriter]:
    """Yield a writer for a store file that replaces `path` when the block ends. Raise Mistake if writing fails."""
    with open_replacement(path) as file, GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as packed:
        writer = StoreFileWriter(packed)
        yield writer
        writer.write_end()


def read_store_file(path: Path) -> Iterator[FileRow]:
    """Yield the rows of a store file.

    Raise Mistake if the file cannot be read or has an unknown format, and StoreCorrupt if it is damaged or not a gzip
    file. Damage may be detected only after the last row.
    """
    try:
        with path.open("rb") as file, GzipFile(fileobj=file, mode="rb") as packed:
            yield from _read_rows(packed, path)
    except (EOFError, zlib.error) as error:
        raise _explain_damage(path) from error
    except OSError as error:
        # BadGzipFile, which is raised if the file is not a gzip file or its checksum is wrong, has no error number.
        if error.errno is None:
            raise StoreCorrupt(f"{path} is not a store file, or is damaged ({error}); nothing was changed") from error
        raise Mistake(f"{path} cannot be read: {error.strerror}") from error


def _read_rows(packed: GzipFile, path: Path) -> Iterator[FileRow]:
    first = packed.readline()
    binary = {table: _find_binary(table) for table in TABLES}
    _require_known_format(first, path)
    digest = sha256(first)
    for rows, line in enumerate(packed):
        try:
            table, *values = msgspec.json.decode(line, type=list[Any])
            if table == "end":
                if values != [rows, digest.hexdigest()] or packed.read(1):
                    raise _explain_damage(path)
                return
            for place in binary[table]:
                values[place] = None if values[place] is None else b64decode(values[place], validate=True)
            if len(values) != len(TABLES[table]):
                raise _explain_damage(path)
        except (msgspec.MsgspecError, KeyError, IndexError, TypeError, ValueError) as error:
            raise _explain_damage(path) from error
        yield FileRow(table, tuple(values))
        digest.update(line)
    raise _explain_damage(path)


def _find_binary(table: str) -> list[int]:
    return [place for place, column in enumerate(TABLES[table]) if column in BINARY_COLUMNS]


def _require_known_format(line: bytes, path: Path) -> None:
    try:
        header = msgspec.json.decode(line, type=_Header)
    except msgspec.MsgspecError as error:
        raise Mistake(f"{path} is not a store file; create one with podium store export") from error
    if header.podium_store > FORMAT or header.tables != TABLES:
        raise Mistake(
            f"{path} was written by Podium {header.release} (format {header.podium_store}); this is Podium "
            f"{__version__}, which reads format {FORMAT}; update Podium, or export the store again with {__version__}"
        )


def _explain_damage(path: Path) -> StoreCorrupt:
    return StoreCorrupt(f"{path} is incomplete or was modified, so it was not read; export the store again")


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
