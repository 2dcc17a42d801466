"""How workers stand, read off their timelines."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from podium import App
from podium.store.sqlite.worker_index import WorkerIndex
from podium.workers.unfinished_workers import load_unfinished_workers

from .worker_lab import Yard


async def test_a_timeline_that_cannot_be_read_keeps_nobody_else_from_working(yard: Yard) -> None:
    damaged = await yard.hire("feat/one", "one")
    whole = await yard.hire("feat/two", "two")
    with closing(sqlite3.connect(yard.store)) as store, store:
        store.execute("DROP TRIGGER entry_stays")
        store.execute("UPDATE entry SET line = ? WHERE run = ?", (b"{}", damaged))

    outlook = load_unfinished_workers(yard.store, ours=())

    assert outlook.plan_starts(most=4).start == [whole]
    assert [hired.run for hired in WorkerIndex(yard.store).list_open()] == [damaged, whole]


async def test_who_has_ended_is_noted_as_such_and_those_that_follow_are_told_how(yard: Yard) -> None:
    first = await yard.hire("feat/one", "one")
    second = await yard.hire("feat/two", "two", follows=["feat/one"])
    async with App(yard.settings(), environ=yard.environ) as app:
        await app.launcher.fail_run(first, "it could not be")

    outlook = load_unfinished_workers(yard.store, ours=())

    assert outlook.plan_starts(most=4).unstartable == [
        (second, "feat/one, which it was to follow, failed: hand: it could not be")
    ]
    assert [hired.run for hired in WorkerIndex(yard.store).list_open()] == [second]


async def test_a_run_that_another_process_has_is_taken_and_not_ours_to_end(yard: Yard) -> None:
    run = await yard.hire("feat/one", "one", tools=None, is_reader=True)
    yard.stop(run)
    free = load_unfinished_workers(yard.store, ours=())
    async with App(yard.settings(), environ=yard.environ):
        with closing(sqlite3.connect(yard.store)) as store, store:
            store.execute("UPDATE run SET owner = (SELECT id FROM owner LIMIT 1) WHERE id = ?", (run,))

        held = load_unfinished_workers(yard.store, ours=())

    assert free.stop_requested == {run}
    assert (held.has_taken_runs, held.stop_requested, held.plan_starts(most=4).start) == (True, frozenset(), [])
