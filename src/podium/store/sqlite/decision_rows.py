"""The decisions of all runs of a store, read through an index that contains no other entries."""

from __future__ import annotations

import sqlite3

from ...values.event import Entry, decode_entry

# SQLite can use a partial index only if the condition of a query contains that of the index, word for word. Without
# INDEXED BY, it would read all entries in the order of their rowid.
SELECT_DECISIONS = (
    "SELECT line FROM entry INDEXED BY entry_decision"
    " WHERE (kind = 'decision_proposed' OR kind = 'vote_closed' OR kind = 'decision_committed') ORDER BY rowid"
)


def select_decision_entries(connection: sqlite3.Connection) -> list[Entry]:
    """Return the entries with the proposal, the end of the vote and the outcome of every decision, as written."""
    return [decode_entry(row[0]) for row in connection.execute(SELECT_DECISIONS)]
