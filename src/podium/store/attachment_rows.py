"""Insert, read, copy and delete message attachments. If no agent receives a message, its attachments are deleted."""

from __future__ import annotations

from collections.abc import Iterable

from ..values.request import AttachedFile
from .sql_connection import SqlConnection, Statement
from .write_statements import DELETE_ATTACHMENTS


def insert_attachments(connection: SqlConnection, run: str, message: str, files: Iterable[AttachedFile]) -> None:
    """Insert a message's attachments."""
    connection.executemany(
        "INSERT INTO attachment (run, message, digest, data) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
        [(run, message, one.attachment.digest, one.data) for one in files],
    )


def select_attachment(connection: SqlConnection, run: str, digest: str) -> bytes | None:
    """Return the data of a run's attachment, or None if the run has no attachment with this digest."""
    found = connection.execute(
        "SELECT data FROM attachment WHERE run = ? AND digest = ? LIMIT 1", (run, digest)
    ).fetchone()
    return None if found is None else bytes(found[0])


def select_attachments(connection: SqlConnection, run: str) -> dict[str, bytes]:
    """Return the data of all attachments of a run, by digest."""
    rows = connection.execute("SELECT digest, data FROM attachment WHERE run = ?", (run,))
    return {str(digest): bytes(data) for digest, data in rows}


def build_attachment_delete(run: str, message: str) -> Statement:
    """Return the statement that deletes all of a message's attachments."""
    return (DELETE_ATTACHMENTS, (run, message))


def build_attachment_copy(source: str, run: str) -> Statement:
    """Return the statement that copies all attachments of a run to another run."""
    return (
        "INSERT INTO attachment (run, message, digest, data) SELECT ?, message, digest, data FROM attachment"
        " WHERE run = ?",
        (run, source),
    )
