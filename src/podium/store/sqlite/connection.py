"""Open connections to a SQLite store, and migrate a store that an older release created."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar
from urllib.parse import quote

from ... import __version__
from ...system.owned_files import make_private_folder
from ...values.errors import LeaseLost, StoreCorrupt, StoreFailed
from ..progress_files import find_recorded_run
from ..sql_connection import LOCK_SECONDS
from .schema import MIGRATIONS, migrate_schema, read_store_version, require_known_version

_LAST_SEEN = (
    "SELECT min(column2, coalesce((SELECT min({}) FROM entry_removal WHERE id > column1), column2))"
    " FROM (VALUES (?, ?))"
)
"""The SQL query that converts a position, which consists of a removal id and a row id, to a row id.

If the entry at the position has been removed since, its row id may belong to a newer entry, because SQLite reuses row
ids. The query then returns the value of the expression that is inserted for `{}`. This expression is based on `last`,
the newest row id that remained after the removal."""


class SqliteConnection(sqlite3.Connection):
    """A connection to a SQLite store. SQLite has one writer at a time, so one lock covers the whole store."""

    folder: TemporaryDirectory[str] | None = None
    """The folder of the copy that this connection reads, if the store itself cannot be read where it is."""

    entry_order: ClassVar[tuple[str, ...]] = ("rowid",)
    # The position of an entry: the id of the last removal before the entry was written, and the entry's row id.
    entry_position: ClassVar[tuple[str, str]] = (
        "(SELECT coalesce(max(id), 0) FROM entry_removal WHERE last < entry.rowid)",
        "rowid",
    )
    entries_after: ClassVar[str] = f"rowid > ({_LAST_SEEN.format('last')})"
    entries_before: ClassVar[str] = f"rowid < ({_LAST_SEEN.format('last + 1')})"
    settled_entries: ClassVar[str] = "TRUE"
    # Without INDEXED BY, SQLite would read all entries in the order of their rowid.
    decision_entries: ClassVar[str] = "entry INDEXED BY entry_decision"

    def begin_read(self) -> None:
        self.execute("BEGIN")

    def begin_write(self, lock: str) -> None:
        self.execute("BEGIN IMMEDIATE")

    def set_durable(self, is_durable: bool) -> None:
        self.execute(f"PRAGMA synchronous = {'FULL' if is_durable else 'NORMAL'}")

    def set_lock_timeout(self, seconds: float) -> None:
        self.execute(f"PRAGMA busy_timeout = {1000 * seconds:.0f}")

    def read_last_group_id(self) -> int:
        row = self.execute("SELECT seq FROM sqlite_sequence WHERE name = 'run_group'").fetchone()
        return 0 if row is None else int(row[0])

    def create_temporary_copies(self, *tables: str) -> None:
        found = self.execute(
            f"SELECT sql FROM main.sqlite_master WHERE type = 'table' AND name IN ({','.join('?' * len(tables))})",
            tables,
        ).fetchall()
        for (statement,) in found:
            self.execute(statement.replace("CREATE TABLE", "CREATE TEMP TABLE", 1))


def open_sqlite(path: Path, *, create: bool) -> SqliteConnection:
    """Open a connection to a store, and migrate the store if needed.

    A missing store is created if `create` is true; otherwise, StoreFailed is raised.
    """
    try:
        if not path.exists():
            if not create:
                raise StoreFailed(f"no store at {path} yet; the first run creates it")
            make_private_folder(path.parent)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        raise StoreFailed(f"cannot create or open the store {path}: {error.strerror}") from error
    with translate_sqlite_errors(path):
        connection = _connect(str(path))
        try:
            # Read before writing anything: a file from another program or a newer release is not changed.
            version = read_store_version(connection, path)
            require_known_version(connection, version, path)
            _prepare_for_writing(connection, version, path)
        except BaseException:
            connection.close()
            raise
        return connection


def open_sqlite_for_reading(path: Path) -> SqliteConnection:
    """Open a connection for reading. An older store is migrated first.

    Raise StoreFailed if there is no store, and StoreCorrupt if the store has lost its content.
    """
    if not path.exists():
        raise StoreFailed(f"no store at {path} yet; the first run creates it")
    with translate_sqlite_errors(path):
        connection = _connect_read_only(path)
        try:
            version = read_store_version(connection, path)
            require_known_version(connection, version, path)
            if version == 0 and find_recorded_run(path, "") is not None:
                raise StoreCorrupt(
                    f"{path} is empty, although runs were written to it: its write-ahead log is damaged; nothing was "
                    "changed. Restore the store from a backup, or move its files away to start with a new one"
                )
        except BaseException:
            connection.close()
            raise
    if version < len(MIGRATIONS):
        connection.close()
        return open_sqlite(path, create=False)
    return connection


def read_sqlite_version(path: Path) -> int:
    """Return the version of a store, or 0 if the store has not been created yet.

    Raise StoreCorrupt if another program created the file.
    """
    if not path.exists():
        return 0
    with translate_sqlite_errors(path), closing(_connect_read_only(path)) as connection:
        return read_store_version(connection, path)


def _connect(address: str, *, uri: bool = False) -> SqliteConnection:
    connection = sqlite3.connect(
        address,
        uri=uri,
        timeout=LOCK_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        factory=SqliteConnection,
    )
    connection.create_function("clock_seconds", 0, time.time)
    return connection


def _connect_read_only(path: Path) -> SqliteConnection:
    """Open a read-only connection, also to a store whose folder is read-only or whose last writer was killed."""
    address = f"file:{quote(str(path.absolute()))}?mode=ro"
    try:
        return _connect_and_read(address)
    except sqlite3.OperationalError as error:
        if not _is_read_only(error) or not os.access(path, os.R_OK):
            raise
        if os.access(path.parent, os.W_OK):
            if not os.access(path, os.W_OK) or not _has_content(path, "-journal"):
                raise
            # A process was killed while it created the store. Only a connection for writing can undo what it began.
            _connect_and_read(f"file:{quote(str(path.absolute()))}").close()
            return _connect_and_read(address)
    if _has_content(path, "-wal") or _has_content(path, "-journal"):
        return _connect_to_copy(path)
    return _connect_and_read(f"{address}&immutable=1")  # tell SQLite that the file does not change


def _connect_and_read(address: str) -> SqliteConnection:
    """Open a connection and read from it, because SQLite opens its files only then."""
    connection = _connect(address, uri=True)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _has_content(path: Path, suffix: str) -> bool:
    try:
        return path.with_name(f"{path.name}{suffix}").stat().st_size > 0
    except OSError:
        return False


def _connect_to_copy(path: Path) -> SqliteConnection:
    """Open a copy of a store in a temporary folder.

    SQLite reads a log or a journal only where it can also write. Without them, the file would be read as it was before.
    """
    folder = TemporaryDirectory(prefix="podium-")
    for suffix in ("", "-wal", "-journal"):
        if (source := path.with_name(f"{path.name}{suffix}")).exists():
            try:
                shutil.copyfile(source, Path(folder.name) / source.name)
            except OSError as error:
                raise StoreFailed(f"cannot copy {source} to {folder.name} to read it: {error.strerror}") from error
    connection = _connect_and_read(f"file:{quote(str(Path(folder.name) / path.name))}")
    connection.folder = folder  # removed together with the connection
    return connection


def _prepare_for_writing(connection: SqliteConnection, version: int, path: Path) -> None:
    """Set up a connection for writing, and migrate an older store. Raise StoreFailed if that store is read-only."""
    try:
        _enable_wal(connection)
        connection.set_durable(False)
        if version < len(MIGRATIONS):
            migrate_schema(connection)
    except sqlite3.OperationalError as error:
        if not 0 < version < len(MIGRATIONS) or not _is_read_only(error):
            raise
        raise StoreFailed(
            f"{path} was written by an older Podium (store version {version}). Podium {__version__} must update it to "
            f"version {len(MIGRATIONS)}, but the file is read-only; make it writable, or copy it and set PODIUM_STORE "
            "to the copy"
        ) from error


def _is_read_only(error: sqlite3.Error) -> bool:
    return any(words in str(error) for words in ("readonly", "unable to open"))


def _enable_wal(connection: sqlite3.Connection) -> None:
    """Switch to write-ahead logging, retrying while other processes open the same new file.

    SQLite ignores the busy timeout for this statement.
    """
    give_up = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > give_up:
                raise
            time.sleep(0.01)
        else:
            return


@contextmanager
def translate_sqlite_errors(path: Path) -> Iterator[None]:
    """Translate SQLite's errors into LeaseLost, StoreCorrupt and StoreFailed."""
    try:
        yield
    except sqlite3.IntegrityError as error:
        raise LeaseLost(
            f"another process has taken over the run; this process can no longer write to it ({error})"
        ) from error
    except sqlite3.DatabaseError as error:
        said = str(error)
        if "malformed" in said or "not a database" in said:
            raise StoreCorrupt(
                f"{path} is not a readable store ({said}) and was not changed; restore it from a backup"
            ) from error
        if "full" in said:
            raise StoreFailed(f"cannot write to {path}: the disk is full; free some space and resume") from error
        if _is_read_only(error):
            raise StoreFailed(f"cannot open or write to {path} ({said}); check its permissions") from error
        raise StoreFailed(f"SQLite failed on {path}: {said}") from error
