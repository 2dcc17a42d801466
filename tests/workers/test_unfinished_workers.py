"""The states of unfinished workers, read from their timelines."""

from __future__ import annotations

from contextlib import closing

from podium import App
from podium.core.placement import WorkerOptions
from podium.store.store_connection import open_connection
from podium.store.worker_index import WorkerIndex
from podium.workers.unfinished_workers import load_unfinished_workers

from ..actors import ADA
from .worker_lab import WorkerLab


async def test_an_unreadable_timeline_does_not_block_other_workers(lab: WorkerLab) -> None:
    damaged = await lab.delegate("feat/one", "one")
    whole = await lab.delegate("feat/two", "two")
    with closing(open_connection(lab.store, create=False)) as store:
        store.execute("DROP TRIGGER entry_stays")
        store.execute("UPDATE entry SET line = ? WHERE run = ?", (b"{}", damaged))

    unfinished = load_unfinished_workers(lab.store, ours=())

    assert unfinished.plan_starts(most=4).start == [whole]
    assert [row.run for row in WorkerIndex(lab.store).list_open()] == [damaged, whole]


async def test_a_worker_that_has_ended_is_closed_and_its_followers_get_the_reason(lab: WorkerLab) -> None:
    first = await lab.delegate("feat/one", "one")
    second = await lab.delegate("feat/two", "two", options=WorkerOptions(after=("feat/one",)))
    async with App(lab.settings(), environ=lab.environ) as app:
        await app.runs.fail(first, "it could not be", by=ADA)

    unfinished = load_unfinished_workers(lab.store, ours=())

    assert unfinished.plan_starts(most=4).unstartable == [
        (second, "it depends on feat/one, which failed: hand: it could not be")
    ]
    assert [row.run for row in WorkerIndex(lab.store).list_open()] == [second]


async def test_a_run_that_another_process_owns_is_taken_and_not_ours_to_stop(lab: WorkerLab) -> None:
    run = await lab.delegate("feat/one", "one", tools=None, options=WorkerOptions(is_reader=True))
    lab.stop(run)
    free = load_unfinished_workers(lab.store, ours=())
    async with App(lab.settings(), environ=lab.environ):
        with closing(open_connection(lab.store, create=False)) as store:
            store.execute("UPDATE run SET owner = (SELECT id FROM owner LIMIT 1) WHERE id = ?", (run,))

        held = load_unfinished_workers(lab.store, ours=())

    assert free.stop_requested == {run}
    assert (held.has_taken_runs, held.stop_requested, held.plan_starts(most=4).start) == (True, frozenset(), [])
