from __future__ import annotations

from pathlib import Path

import pytest

from podium import Agent, App, Settings
from podium.core.timeline import Timeline
from podium.runs import find
from podium.store.mailbox import post_to_mailbox
from podium.store.run_store import RunStore
from podium.store.worker_index import WorkerIndex, build_worker_insert
from podium.values.errors import NoSuchRun
from podium.values.event import Noticed, PauseAsked, StopAsked
from podium.values.fleet_job import FleetJob
from podium.values.store_address import PostgresAddress, StoreAddress
from podium.values.worker_task import WorkerTask
from podium.workers.delegation import enqueue_worker_run

from ..actors import ADA
from .conftest import empty_store


@pytest.fixture
async def runs(address: StoreAddress, tmp_path: Path) -> list[str]:
    """Return the runs of three workers in two repositories."""
    async with App(Settings.load({}, home=tmp_path, store=address, model="rehearsal"), environ={}) as app:
        return [
            await enqueue_worker_run(
                app.runs,
                app.runs.settings,
                Agent(name="a"),
                "go",
                WorkerTask(root=root, path=root, branch=branch),
                {},
                by=ADA,
            )
            for root, branch in (("/one", "x"), ("/one", "y"), ("/two", "x"))
        ]


def test_a_store_that_is_not_there_has_no_workers(tmp_path: Path) -> None:
    assert WorkerIndex(tmp_path / "none.db").list_all() == []


async def test_workers_are_found_in_the_order_of_delegation(runs: list[str], address: StoreAddress) -> None:
    index = WorkerIndex(address)

    assert [row.run for row in index.list_all()] == runs
    assert [row.run for row in index.list_all("/one")] == runs[:2]
    assert [row.run for row in index.find_by_name("/two", "x")] == [runs[2]]
    assert [row.run for row in index.list_open()] == runs


async def test_a_closed_worker_is_no_longer_open_and_still_listed(runs: list[str], address: StoreAddress) -> None:
    index = WorkerIndex(address)

    index.mark_closed(runs[0])

    assert [row.run for row in index.list_open()] == runs[1:]
    assert not index.list_all()[0].is_open


async def test_open_workers_that_were_asked_to_stop_are_listed(runs: list[str], address: StoreAddress) -> None:
    post_to_mailbox(address, runs[0], StopAsked(by="me"))
    post_to_mailbox(address, runs[1], PauseAsked(by="me"))
    post_to_mailbox(address, runs[2], StopAsked(by="me"))
    WorkerIndex(address).mark_closed(runs[2])

    assert WorkerIndex(address).list_stop_requested() == {runs[0]}


async def test_a_worker_is_found_by_its_name_in_its_repository(runs: list[str], address: StoreAddress) -> None:
    index = WorkerIndex(address)

    assert [row.run for row in index.find_in_repository("/one", "x")] == [runs[0]]
    assert index.find_in_repository("/two", "y") == []
    assert [find.resolve(address, run, repo=Path("/")).run for run in (runs[0], runs[2][:9])] == [runs[0], runs[2]]
    assert find.resolve(address, "last", repo=Path("/two")).run == runs[2]


async def test_a_worker_that_was_started_on_another_machine_is_found_where_its_parent_was_started(
    store_database: str, tmp_path: Path
) -> None:
    store = PostgresAddress(store_database, tmp_path / "runtime")
    empty_store(store)
    there = WorkerTask(root="/on/the/host", path="/on/the/host", branch="feat/part", parent="parent")
    async with RunStore(store) as run_store:
        run_store.begin_run("parent", build_worker_insert("parent", WorkerTask(root="/one", path="/one", branch="x")))
        job = FleetJob(run="child", parent="parent")
        timeline = Timeline("child", run_store.begin_run("child", build_worker_insert("child", there, job)))
        timeline.append(Noticed(text="begun"), scope="")
        await timeline.wait_written()

    assert find.resolve(store, "feat/part", repo=Path("/one")).run == "child"
    with pytest.raises(NoSuchRun):
        find.resolve(store, "feat/part", repo=Path("/two"))
