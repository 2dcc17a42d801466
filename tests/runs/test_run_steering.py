"""Steering runs: what is true for every interface, because the acts do it."""

from __future__ import annotations

from podium import Agent
from podium.core.timeline import Timeline
from podium.runs.run_steering import stop_run
from podium.store.run_store import RunStore
from podium.store.worker_index import WorkerIndex, build_worker_insert
from podium.values.actor import Actor
from podium.values.event import RunStarted
from podium.values.request import Request
from podium.values.worker_task import WorkerTask

from ..studio import Studio

ADA = Actor(name="ada", channel="page")


async def write_queued_worker(studio: Studio) -> None:
    task = WorkerTask(root="/shop", branch="feat/a", path="/shop.worktrees/feat-a")
    started = RunStarted(agent="lead", request=Request(text="go"), agents=(Agent(name="lead"),), errand=task)
    async with RunStore(studio.settings.store) as store:
        timeline = Timeline("r1", store.begin_run("r1", build_worker_insert("r1", task)))
        timeline.append(started, scope="")
        await timeline.wait_written()


async def test_a_worker_that_is_stopped_before_it_starts_is_no_longer_open(studio: Studio) -> None:
    await write_queued_worker(studio)
    index = WorkerIndex(studio.settings.store)
    before = [row.run for row in index.list_open()]

    async with studio.app() as app:
        stopped = await stop_run(app.runs, "r1", by=ADA)

    assert before == ["r1"]
    assert not stopped.is_pending
    assert index.list_open() == []
