from __future__ import annotations

from pathlib import Path

import pytest

from podium import Agent, App, Settings
from podium.store.mailbox import post_to_mailbox
from podium.store.worker_index import WorkerIndex
from podium.values.event import PauseAsked, StopAsked
from podium.values.store_address import StoreAddress
from podium.values.worker_task import WorkerTask
from podium.workers.delegate import enqueue_worker_run

from ..actors import ADA


@pytest.fixture
async def runs(address: StoreAddress, tmp_path: Path) -> list[str]:
    """Return the runs of three workers in two repositories."""
    async with App(Settings.load({}, home=tmp_path, store=address, model="rehearsal"), environ={}) as app:
        return [
            await enqueue_worker_run(
                app.launcher, Agent(name="a"), "go", WorkerTask(root=root, path=root, branch=branch), by=ADA
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
