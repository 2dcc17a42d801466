"""Decisions of all runs of a store, found without reading anything else."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from podium.core.scope import Scope
from podium.core.timeline import Timeline
from podium.store.decision_rows import build_decision_query
from podium.store.reader import StoreReader
from podium.store.run_store import RunStore
from podium.store.store_connection import open_connection
from podium.values.event import BallotCast, DecisionCommitted, DecisionProposed, Noticed, VoteClosed


async def test_the_decisions_of_all_runs_are_read_through_an_index_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with RunStore(path) as store:
        for run in ("b", "a"):
            place = Scope(Timeline(run, store.begin_run(run)), "lead", operation="lead", digest="d")
            place.record(Noticed(text="hello"))
            place.record(DecisionProposed(id=f"of-{run}", topic="Which?", options=("x", "y")))
            place.record(BallotCast(decision=f"of-{run}", voter="ada", option="x"))
            place.record(VoteClosed(decision=f"of-{run}", why="decided"))
            place.record(DecisionCommitted(decision=f"of-{run}", option="x", how="majority"))
            await place.timeline.wait_written()
        own = store.read_decision_entries()

    with StoreReader(path) as reader:
        found = reader.read_decision_entries()
    assert found == own
    assert [(entry.run, entry.seq) for entry in found] == [("b", 2), ("b", 4), ("b", 5), ("a", 2), ("a", 4), ("a", 5)]
    with closing(open_connection(path, create=False)) as connection:
        query = build_decision_query(connection)
        plan = " ".join(row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {query}"))
        assert "entry USING INDEX entry_decision" in plan


async def test_entries_are_inserted_without_a_temporary_table(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with RunStore(path):
        pass

    with closing(sqlite3.connect(path)) as connection:
        insert = "EXPLAIN INSERT INTO entry (run, seq, epoch, kind, key, line, hash) VALUES (?, ?, ?, ?, ?, ?, ?)"
        steps = [row[1] for row in connection.execute(insert, (None,) * 7)]

    assert "Insert" in steps
    assert "OpenEphemeral" not in steps
