"""The decisions of all runs of a store, read through an index that contains no other entries."""

from __future__ import annotations

import sqlite3

from ...values.event import Entry, decode_entry

# SQLite uses a partial index only if the condition of a query contains that of the index, word for word.
SELECT_DECISIONS = (
    "SELECT line FROM entry JOIN run ON run.id = entry.run"
    " WHERE kind IN ('decision_proposed', 'vote_closed', 'decision_committed') ORDER BY run.created, run.id, seq"
)


def select_decision_entries(connection: sqlite3.Connection) -> list[Entry]:
    """Return the entries with the proposal, the end of the vote and the outcome of every decision, oldest run first."""
    return [decode_entry(row[0]) for row in connection.execute(SELECT_DECISIONS)]
