"""What came with messages, in the store. It goes with its message: what nobody heard is not kept."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from ...values.attachment import AttachedFile
from .writer import Statement


def insert_attachments(connection: sqlite3.Connection, run: str, message: str, files: Iterable[AttachedFile]) -> None:
    """Keep what comes with a message."""
    connection.executemany(
        "INSERT OR IGNORE INTO attachment (run, message, digest, data) VALUES (?, ?, ?, ?)",
        [(run, message, one.attachment.digest, one.data) for one in files],
    )


def select_attachment(connection: sqlite3.Connection, run: str, digest: str) -> bytes | None:
    """What came with a message of a run; None where nothing like it did, or it was dropped."""
    found = connection.execute(
        "SELECT data FROM attachment WHERE run = ? AND digest = ? LIMIT 1", (run, digest)
    ).fetchone()
    return None if found is None else bytes(found[0])


def build_attachment_delete(run: str, message: str) -> Statement:
    """What drops all that came with a message."""
    return ("DELETE FROM attachment WHERE run = ? AND message = ?", (run, message))
