"""Read the decisions of all runs in a store, through an index that contains only the entries of decisions."""

from __future__ import annotations

import sqlite3

from ...values.event import Entry, decode_entry

# SQLite uses a partial index only if the query contains the condition of the index word for word.
SELECT_DECISIONS = (
    "SELECT line FROM entry JOIN run ON run.id = entry.run"
    " WHERE kind IN ('decision_proposed', 'vote_closed', 'decision_committed') ORDER BY run.created, run.id, seq"
)


def select_decision_entries(connection: sqlite3.Connection) -> list[Entry]:
    """Return the entries that record each decision's proposal, end of vote and outcome, oldest run first."""
    return [decode_entry(row[0]) for row in connection.execute(SELECT_DECISIONS)]
