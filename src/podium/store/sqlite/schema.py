"""Define the schema of a SQLite store, and migrate the schema of a store that an older release created."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from ... import __version__
from ...values.errors import StoreCorrupt, StoreFailed

APPLICATION = 0x506F6469
"""The application id that marks a SQLite file as a Podium store: "Podi"."""

MIGRATIONS = (
    """
    CREATE TABLE owner (
        id TEXT PRIMARY KEY,
        host TEXT NOT NULL,
        boot TEXT NOT NULL,
        pid INTEGER NOT NULL,
        born TEXT NOT NULL,
        until REAL NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE run (
        id TEXT PRIMARY KEY,
        created REAL NOT NULL,
        owner TEXT,
        epoch INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE entry (
        run TEXT NOT NULL,
        seq INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        kind TEXT NOT NULL,
        key TEXT NOT NULL,
        line BLOB NOT NULL,
        hash BLOB NOT NULL,
        PRIMARY KEY (run, seq)
    ) STRICT;
    CREATE TRIGGER entry_stays BEFORE UPDATE ON entry
    BEGIN SELECT RAISE(ABORT, 'entries never change'); END;
    CREATE TABLE mail (
        id INTEGER PRIMARY KEY,
        run TEXT NOT NULL,
        ref TEXT NOT NULL,
        at REAL NOT NULL,
        line BLOB NOT NULL,
        taken INTEGER,
        UNIQUE (run, ref)
    ) STRICT;
    CREATE INDEX mail_waiting ON mail (run) WHERE taken IS NULL;
    """,
    """
    CREATE TABLE run_group (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        kind TEXT NOT NULL,
        repo TEXT NOT NULL,
        team TEXT NOT NULL,
        name TEXT NOT NULL,
        position INTEGER,
        pinned INTEGER NOT NULL,
        archived INTEGER NOT NULL,
        UNIQUE (kind, repo, team)
    ) STRICT;
    INSERT INTO run_group (kind, repo, team, name, pinned, archived) VALUES ('default', '', '', 'default', 0, 0);
    CREATE TRIGGER default_group_stays BEFORE DELETE ON run_group WHEN OLD.kind = 'default'
    BEGIN SELECT RAISE(ABORT, 'the default group stays'); END;
    CREATE TABLE placement (
        run TEXT PRIMARY KEY,
        place INTEGER,
        name TEXT NOT NULL,
        position INTEGER,
        pinned INTEGER NOT NULL,
        archived INTEGER NOT NULL,
        manual INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    """,
    """
    CREATE TABLE worktree (
        id INTEGER PRIMARY KEY,
        path TEXT NOT NULL,
        repository TEXT NOT NULL,
        branch TEXT NOT NULL,
        base TEXT NOT NULL,
        run TEXT NOT NULL,
        git_dir TEXT NOT NULL,
        is_new_branch INTEGER NOT NULL,
        state TEXT NOT NULL,
        created REAL NOT NULL,
        size INTEGER NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX worktree_path ON worktree (path) WHERE state != 'gone';
    CREATE UNIQUE INDEX worktree_branch ON worktree (repository, branch) WHERE state != 'gone';
    """,
    """
    CREATE TABLE worker (
        run TEXT PRIMARY KEY,
        root TEXT NOT NULL,
        branch TEXT NOT NULL,
        is_open INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX worker_branch ON worker (root, branch);
    """,
    """
    CREATE TABLE attachment (
        run TEXT NOT NULL,
        message TEXT NOT NULL,
        digest TEXT NOT NULL,
        data BLOB NOT NULL,
        PRIMARY KEY (run, message, digest)
    ) STRICT;
    """,
    """
    CREATE TABLE artifact (
        digest TEXT PRIMARY KEY,
        data BLOB NOT NULL
    ) STRICT, WITHOUT ROWID;
    """,
    """
    CREATE INDEX entry_decision ON entry (run, seq)
    WHERE kind IN ('decision_proposed', 'vote_closed', 'decision_committed');
    """,
    # This index replaces the one above. With IN, SQLite would build a temporary table of the kinds in every statement
    # that inserts entries.
    """
    DROP INDEX entry_decision;
    CREATE INDEX entry_decision ON entry (run, seq)
    WHERE kind = 'decision_proposed' OR kind = 'vote_closed' OR kind = 'decision_committed';
    """,
    """
    CREATE TABLE command_key (
        key TEXT PRIMARY KEY,
        digest TEXT NOT NULL,
        id TEXT NOT NULL,
        at REAL NOT NULL,
        reply BLOB
    ) STRICT, WITHOUT ROWID;
    """,
    # `seq` is the sequence number of the run's last indexed entry. `shared` is how many of the run's entries are copies
    # of another run's entries.
    """
    CREATE TABLE indexed_run (
        id INTEGER PRIMARY KEY,
        run TEXT NOT NULL UNIQUE,
        seq INTEGER NOT NULL,
        shared INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE indexed_entry (
        run INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        at REAL NOT NULL,
        kind TEXT NOT NULL,
        agent TEXT NOT NULL,
        step TEXT NOT NULL,
        PRIMARY KEY (run, seq)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX indexed_entry_at ON indexed_entry (at);
    CREATE INDEX indexed_entry_kind ON indexed_entry (kind, at);
    CREATE INDEX indexed_entry_agent ON indexed_entry (agent, at);
    CREATE INDEX indexed_entry_step ON indexed_entry (step, at) WHERE step != '';
    """,
    """
    CREATE TABLE schedule (
        id TEXT PRIMARY KEY,
        cron TEXT NOT NULL,
        zone TEXT NOT NULL,
        agent TEXT NOT NULL,
        request TEXT NOT NULL,
        root TEXT NOT NULL,
        host TEXT NOT NULL,
        created REAL NOT NULL,
        is_paused INTEGER NOT NULL,
        next_at REAL NOT NULL,
        last_at REAL NOT NULL,
        last_run TEXT NOT NULL,
        missed INTEGER NOT NULL,
        missed_at REAL NOT NULL,
        error TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    """,
    """
    CREATE TABLE issue_claim (
        source TEXT NOT NULL,
        issue TEXT NOT NULL,
        token TEXT NOT NULL,
        claimed REAL NOT NULL,
        root TEXT NOT NULL,
        title TEXT NOT NULL,
        body TEXT NOT NULL,
        author TEXT NOT NULL,
        url TEXT NOT NULL,
        state TEXT NOT NULL,
        agent TEXT NOT NULL,
        branch TEXT NOT NULL,
        note TEXT NOT NULL,
        comment TEXT NOT NULL,
        comment_at REAL NOT NULL,
        comment_tries INTEGER NOT NULL,
        comment_url TEXT NOT NULL,
        PRIMARY KEY (source, issue)
    ) STRICT;
    CREATE INDEX issue_claim_open ON issue_claim (source, claimed) WHERE state = 'claimed' OR state = 'triage'
    OR state = 'work' OR comment = 'wanted' OR comment = 'posting';
    """,
    # SQLite reuses the row ids of the newest entries when they are removed. `last` is the newest row id after such a
    # removal: entries with a higher row id were written later.
    """
    CREATE TABLE entry_removal (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        last INTEGER NOT NULL
    ) STRICT;
    """,
    # Events name the interface through which a person acted. An older release cannot read the new interfaces.
    """
    ALTER TABLE schedule ADD COLUMN author TEXT NOT NULL DEFAULT '';
    """,
)


def require_known_version(connection: sqlite3.Connection, version: int, path: Path) -> None:
    """Raise StoreFailed if the store was written by a newer Podium."""
    if version > len(MIGRATIONS):
        raise StoreFailed(
            f"{path} was written by {_find_newer_release(connection)} (store version {version}); this is Podium "
            f"{__version__}, which supports versions up to {len(MIGRATIONS)}; update it with pip install --upgrade "
            "podium, or set PODIUM_STORE to another file"
        )


def _find_newer_release(connection: sqlite3.Connection) -> str:
    """Return the release that wrote the newest run, such as `Podium 0.5.0`, for an error message.

    If that release is unknown or is not newer than this one, return `a newer Podium`.
    """
    # A newer release may have changed the tables.
    with suppress(sqlite3.Error, msgspec.MsgspecError):
        newest = "SELECT line FROM entry WHERE kind = 'run_started' ORDER BY rowid DESC LIMIT 1"
        row = connection.execute(newest).fetchone()
        release = "" if row is None else msgspec.json.decode(row[0], type=_StartedLine).event.version
        # A newer release may have migrated the store without starting a run, so the newest run may not be from it.
        if _parse_release(release) > _parse_release(__version__):
            return f"Podium {release}"
    return "a newer Podium"


class _StartedEvent(Struct):
    version: str = ""


class _StartedLine(Struct):
    """The part of a run's first entry that says which release wrote it."""

    event: _StartedEvent


def _parse_release(release: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", release)[:3])


def read_store_version(connection: sqlite3.Connection, path: Path) -> int:
    """Return the store's version, or 0 for an empty file. Raise StoreCorrupt if another program created the file."""
    connection.execute("BEGIN")
    try:
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version = _read_user_version(connection)
    finally:
        connection.execute("COMMIT")
    if application != APPLICATION and (version or tables):
        raise StoreCorrupt(f"{path} belongs to another program and was not changed; set PODIUM_STORE to another file")
    return version


def _read_user_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate_schema(connection: sqlite3.Connection) -> None:
    """Apply the migrations that the store does not have yet."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Read again under the lock: another process may have migrated the store in the meantime.
        for number in range(_read_user_version(connection), len(MIGRATIONS)):
            for statement in _split_statements(MIGRATIONS[number]):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {number + 1}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _split_statements(script: str) -> Iterator[str]:
    """Yield the statements of a script. They are executed individually, because `executescript` commits first."""
    statement = ""
    for line in script.splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
