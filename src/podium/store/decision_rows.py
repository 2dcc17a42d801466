"""Read the decisions of all runs in a store through an index that contains only decisions."""

from __future__ import annotations

import sqlite3

from ..values.event import Entry, decode_entry

# SQLite can use a partial index only if the query repeats the condition of the index word for word. Without INDEXED
# BY, SQLite would read all entries in the order of their rowid.
SELECT_DECISIONS = (
    "SELECT line FROM entry INDEXED BY entry_decision"
    " WHERE (kind = 'decision_proposed' OR kind = 'vote_closed' OR kind = 'decision_committed') ORDER BY rowid"
)


def select_decision_entries(connection: sqlite3.Connection) -> list[Entry]:
    """Return the entries that record proposals, ends of votes and outcomes, in the order in which they were written."""
    return [decode_entry(row[0]) for row in connection.execute(SELECT_DECISIONS)]
