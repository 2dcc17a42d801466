"""The limit for a timeline: SQLite with the same tables and pragmas, inserting rows that are already built."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from podium.core.journal_rows import JournalRow
from podium.core.timeline import Timeline
from podium.store.sql_connection import SqlConnection
from podium.store.store_connection import open_connection

from ..child import Clock, serve
from ..sample_timelines import STREAMED, MemoryLease

INSERT = "INSERT INTO entry (run, seq, epoch, kind, key, line, hash) VALUES "
PLACEHOLDERS = "(?,?,?,?,?,?,?)"
LONGEST_INSERT = 100


async def append(request: dict[str, Any]) -> dict[str, float]:
    """Insert the same number of rows, in transactions of `runs` times `settled` rows."""
    runs, each = request["runs"], request["each"]
    batch = runs * request["settled"]
    rows = sorted(build_rows(runs, each), key=lambda row: row.seq)
    batches = [rows[place : place + batch] for place in range(0, len(rows), batch)]
    with TemporaryDirectory() as folder, closing(open_connection(Path(folder, "podium.db"), create=True)) as connection:
        insert = _make_insert(connection)
        with Clock() as clock:
            for part in batches:
                connection.execute("BEGIN IMMEDIATE")
                insert(part)
                connection.execute("COMMIT")
        written = connection.execute("SELECT count(*) FROM entry").fetchone()[0]
    return clock.as_sample(len(rows), failed=len(rows) - written)


def _make_insert(connection: SqlConnection) -> Callable[[list[JournalRow]], None]:
    """Build one statement for many rows, which is faster than many statements."""
    statements = {size: INSERT + ",".join([PLACEHOLDERS] * size) for size in (1, 10, LONGEST_INSERT)}

    def insert(rows: list[JournalRow]) -> None:
        connection.execute(statements[len(rows)], list(chain.from_iterable(rows)))

    return insert


def build_rows(runs: int, each: int) -> list[JournalRow]:
    """Build the rows that Podium would write."""
    lease = MemoryLease()
    for run in range(runs):
        timeline = Timeline(str(run), lease)
        for _ in range(each):
            timeline.append(STREAMED, scope="poet/turn#1", operation="poet")
    return lease.rows


async def load(request: dict[str, Any]) -> dict[str, float]:
    """Read a run's rows."""
    with Clock() as clock:
        for _ in range(request["times"]):
            with closing(sqlite3.connect(request["store"])) as connection:
                rows = connection.execute(
                    "SELECT run, seq, epoch, kind, key, line, hash FROM entry WHERE run = ? ORDER BY seq",
                    (request["run"],),
                ).fetchall()
    return clock.as_sample(request["times"], failed=request["events"] - len(rows))


if __name__ == "__main__":
    serve(append=append, load=load)
