"""Notice that the server of a store was replaced since a run was last written.

A standby that is promoted, and a backup that is restored, can lack the last entries of a run. Each run therefore has
the identity of the server that it was last written to.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from ...core.journal_rows import JournalRow
from ...values.errors import StoreCorrupt
from ...values.event import KINDS, RunEnded
from ...values.store_address import PostgresAddress
from .connection import PostgresConnection, translate_postgres_errors

_ACCEPTED = "accepted:"

_CHANGED = (
    "the PostgreSQL server of the store has changed since the run's last entry, because a standby was promoted or a "
    "backup was restored"
)


def require_same_server(store: PostgresAddress, run: str, rows: Sequence[JournalRow]) -> str:
    """Raise StoreCorrupt if a run that has not ended was last written to another server.

    Otherwise, return a notice if a person has accepted the change, or else an empty string.
    """
    written, current = _read_identities(store, run)
    if written == _ACCEPTED + current:
        return f"this run was resumed although {_CHANGED}, and entries may have been lost"
    if written in ("", current) or _has_ended(rows):
        return ""
    raise StoreCorrupt(
        f"run {run} may have lost entries: {_CHANGED}; it was not resumed, because it would repeat the work in them. "
        f"Check the run's last actions and continue with: podium resume {run} --accept-loss"
    )


def accept_server(store: PostgresAddress, run: str) -> None:
    """Record that a person has accepted that the current server may lack entries of a run."""
    with translate_postgres_errors(store), closing(PostgresConnection(store)) as connection:
        connection.execute(
            "UPDATE run SET server = ? || read_server_identity() WHERE id = ? AND server <> read_server_identity()",
            (_ACCEPTED, run),
        )


def find_server_change(store: PostgresAddress, run: str, rows: Sequence[JournalRow]) -> str:
    """Return a notice if a run that has not ended was last written to another server, or else an empty string."""
    written, current = _read_identities(store, run)
    if written.removeprefix(_ACCEPTED) in ("", current) or _has_ended(rows):
        return ""
    return f"{_CHANGED}; entries lost at the end cannot be detected"


def _read_identities(store: PostgresAddress, run: str) -> tuple[str, str]:
    """Return the identity of the server that a run was last written to, and that of the current server."""
    with translate_postgres_errors(store), closing(PostgresConnection(store)) as connection:
        found = connection.execute("SELECT server, read_server_identity() FROM run WHERE id = ?", (run,)).fetchone()
    return ("", "") if found is None else found


def _has_ended(rows: Sequence[JournalRow]) -> bool:
    return bool(rows) and rows[-1].kind == KINDS[RunEnded]
