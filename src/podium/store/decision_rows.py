"""Read the decisions of all runs in a store through an index that contains only decisions."""

from __future__ import annotations

from ..values.event import Entry, decode_entry
from .sql_connection import SqlConnection

# SQLite can use a partial index only if the query repeats the condition of the index word for word.
IS_DECISION = "(kind = 'decision_proposed' OR kind = 'vote_closed' OR kind = 'decision_committed')"


def select_decision_entries(connection: SqlConnection) -> list[Entry]:
    """Return the entries for proposals, closed votes and outcomes, in the order in which they were written."""
    return [decode_entry(row[0]) for row in connection.execute(build_decision_query(connection))]


def build_decision_query(connection: SqlConnection) -> str:
    """Return the query that selects the entries of all decisions as JSON lines."""
    order = ", ".join(connection.entry_order)
    return f"SELECT line FROM {connection.decision_entries} WHERE {IS_DECISION} ORDER BY {order}"
