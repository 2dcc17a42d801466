"""A database that is restarted or closes connections while a run writes to it and while a worker waits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import psycopg
import pytest
from anyio import create_task_group, to_thread

from podium.core.journal_rows import find_chain_break
from podium.store.postgres.connection import close_idle_connections
from podium.store.reader import StoreReader
from podium.testing import calls
from podium.testing.postgres_cluster import PostgresCluster, run_cluster
from podium.values.event import RunResumed, ToolAnswered
from podium.values.store_address import PostgresAddress, StoreAddress

from ..studio import Studio
from .worker_lab import WorkerLab, bash, open_worker_lab

Cut = Callable[[PostgresCluster, str], None]
"""Ends all connections to a database of a server, which then accepts new ones."""


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[PostgresCluster]:
    """A server that the tests of this module stop and start."""
    with run_cluster() as cluster:
        yield cluster


def restart(cluster: PostgresCluster, url: str) -> None:
    cluster.stop()
    cluster.start()


def crash(cluster: PostgresCluster, url: str) -> None:
    cluster.stop("immediate")
    cluster.start()


def terminate_connections(cluster: PostgresCluster, url: str) -> None:
    """End all connections to a database, as an administrator does, and wait until they are gone."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )


every_cut = pytest.mark.parametrize("cut", [restart, crash, terminate_connections])


def require_intact(store: StoreAddress, run: str) -> None:
    with StoreReader(store) as reader:
        assert find_chain_break(reader.read_rows(run)) is None


@every_cut
async def test_a_run_goes_on_when_its_connections_are_cut_in_each_of_its_calls(
    own_cluster: PostgresCluster, tmp_path: Path, cut: Cut
) -> None:
    url = own_cluster.create_database(f"run_{cut.__name__}")
    studio = Studio(tmp_path / "home", store=PostgresAddress(url, tmp_path / "runtime"))

    async def cut_connections(number: int) -> str:
        await to_thread.run_sync(cut, own_cluster, url)
        return f"cut {number}"

    moves = [calls("cut_connections", number=number) for number in (1, 2)]
    lead = studio.agent("lead", says=[*moves, "done"], tools=["cut_connections"])
    async with studio.app() as app:
        result = await app.run(lead, "go", tools=[cut_connections])

    assert (result.outcome, result.text) == ("succeeded", "done")
    assert [answer.text for answer in studio.events(result, ToolAnswered)] == ["cut 1", "cut 2"]
    assert len(studio.calls) == 3
    require_intact(studio.settings.store, result.run_id)
    close_idle_connections()


async def test_a_run_writes_on_while_its_server_is_away_and_nothing_is_lost(
    own_cluster: PostgresCluster, tmp_path: Path
) -> None:
    url = own_cluster.create_database("away")
    studio = Studio(tmp_path / "home", store=PostgresAddress(url, tmp_path / "runtime"))
    async with create_task_group() as group:

        async def stop_server() -> str:
            await to_thread.run_sync(own_cluster.stop)
            group.start_soon(to_thread.run_sync, own_cluster.start)
            return "stopped"

        lead = studio.agent("lead", says=[calls("stop_server"), "done"], tools=["stop_server"])
        async with studio.app() as app:
            result = await app.run(lead, "go", tools=[stop_server])

    assert (result.outcome, result.text) == ("succeeded", "done")
    assert [answer.text for answer in studio.events(result, ToolAnswered)] == ["stopped"]
    require_intact(studio.settings.store, result.run_id)
    close_idle_connections()


@asynccontextmanager
async def open_lab(url: str) -> AsyncIterator[WorkerLab]:
    """Open a worker lab whose store is a database."""
    async with open_worker_lab(partial(WorkerLab, store_url=url)) as lab:
        yield lab
        await lab.close()
        close_idle_connections()


@pytest.mark.slow
@every_cut
async def test_a_worker_that_waits_for_an_answer_goes_on_after_its_connections_were_cut(
    own_cluster: PostgresCluster, cut: Cut
) -> None:
    url = own_cluster.create_database(f"worker_{cut.__name__}")
    async with open_lab(url) as lab:
        run = await lab.delegate(
            "feat/one", bash("echo asked >made.txt"), bash("echo again >>made.txt"), "done", allow=()
        )
        lab.start_commander()
        first = await lab.wait_asked(run)

        await to_thread.run_sync(cut, own_cluster, url)
        await to_thread.run_sync(lab.answer, run, first, "once")
        second = await lab.wait_asked(run, 2)
        await to_thread.run_sync(cut, own_cluster, url)
        await to_thread.run_sync(lab.answer, run, second, "once")

        assert (await lab.wait_ended(run)).outcome == "succeeded"
        await lab.wait_finished()
        assert lab.read_file("feat/one", "made.txt") == "asked\nagain"
        assert len(lab.events(run, RunResumed)) == 1, "the worker has not crashed"
        lab.assert_clean_end(run)
