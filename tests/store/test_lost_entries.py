"""A PostgreSQL server that lost entries: after a failover to a standby that lagged, or when a backup was restored."""

from __future__ import annotations

import shutil
from contextlib import closing
from functools import partial
from pathlib import Path

import psycopg
import pytest
from anyio import to_thread

from podium.core.timeline import Timeline
from podium.store.postgres.connection import close_idle_connections
from podium.store.reader import StoreReader
from podium.store.run_integrity import accept_lost_entries, describe_undetectable_loss, require_intact_run
from podium.store.run_store import RunStore
from podium.store.store_check import find_damage
from podium.testing.postgres_cluster import PostgresCluster, run_as_postgres, run_cluster
from podium.values.errors import StoreCorrupt
from podium.values.event import Noticed, OperationStarted, PermissionAnswered, RunEnded, RunPaused
from podium.values.request import Request
from podium.values.store_address import PostgresAddress

from .conftest import empty_store


@pytest.fixture
def store(store_database: str, tmp_path: Path) -> PostgresAddress:
    address = PostgresAddress(store_database, tmp_path / "runtime")
    empty_store(address)
    return address


def back_up(cluster: PostgresCluster) -> None:
    """Copy the files of the server while it is stopped."""
    cluster.stop()
    shutil.rmtree(cluster.folder / "copy", ignore_errors=True)
    run_as_postgres(["cp", "-r", str(cluster.folder / "data"), str(cluster.folder / "copy")], cluster.folder)
    cluster.start()


def restore(cluster: PostgresCluster, *, as_standby: bool) -> None:
    """Start the copy in place of the server; as a standby, it is promoted, and begins a new timeline."""
    cluster.stop()
    shutil.rmtree(cluster.folder / "data")
    (cluster.folder / "copy").rename(cluster.folder / "data")
    if as_standby:
        run_as_postgres(["touch", str(cluster.folder / "data" / "standby.signal")], cluster.folder)
    cluster.start()
    if as_standby:
        promote = [str(cluster.programs / "pg_ctl"), "promote", "-w", "-s", "-D", str(cluster.folder / "data")]
        run_as_postgres(promote, cluster.folder)
    close_idle_connections()


def elsewhere(store: PostgresAddress) -> PostgresAddress:
    """The same store, seen from another machine."""
    return PostgresAddress(store.url, store.folder / "elsewhere")


async def append(timeline: Timeline, *texts: str) -> None:
    for text in texts:
        timeline.append(OperationStarted(agent="lead", trigger="request", request=Request(text=text)), scope="lead")
        await timeline.wait_written()


async def approve(timeline: Timeline) -> None:
    timeline.append(PermissionAnswered(id="p", decision="once", by="ada"), scope="lead")
    await timeline.wait_written()


async def begin_run(store: PostgresAddress, run: str) -> None:
    """Write the first entries of a run, whose process then ends."""
    async with RunStore(store) as opened:
        lease = opened.begin_run(run)
        await append(Timeline(run, lease), "one", "two")


async def continue_run(store: PostgresAddress, run: str) -> None:
    async with RunStore(store) as opened:
        timeline = Timeline(run, await opened.claim_run(run))
        timeline.load(await opened.read_rows(run))
        await append(timeline, "three")
        await approve(timeline)
        await append(timeline, "four")


def check(store: PostgresAddress, run: str) -> str:
    with StoreReader(store) as reader:
        return require_intact_run(store, run, reader.read_rows(run))


def describe(store: PostgresAddress, run: str) -> str:
    with StoreReader(store) as reader:
        return describe_undetectable_loss(store, run, reader.read_rows(run))


def count_entries(store: PostgresAddress, run: str) -> int:
    with StoreReader(store) as reader:
        return len(reader.read_rows(run))


def accept(store: PostgresAddress, run: str) -> None:
    with StoreReader(store) as reader:
        accept_lost_entries(store, run, reader.read_rows(run))


def lose_entries(store: PostgresAddress, run: str, *, after: int) -> None:
    """Do to one run what an older copy of the same server does to all."""
    with closing(psycopg.connect(store.url, autocommit=True)) as connection:
        connection.execute("DELETE FROM podium.entry WHERE run = %s AND seq > %s", (run, after))


def replace_server(store: PostgresAddress) -> None:
    """Make all runs look as if another server had written them."""
    with closing(psycopg.connect(store.url, autocommit=True)) as connection:
        connection.execute("UPDATE podium.run SET server = '1/2/3'")


@pytest.mark.parametrize("as_standby", [True, pytest.param(False, marks=pytest.mark.slow)])
async def test_a_live_run_stops_behind_the_entries_that_a_replaced_server_lost_and_another_goes_on(
    tmp_path: Path, as_standby: bool
) -> None:
    with run_cluster() as cluster:
        store = PostgresAddress(cluster.make_url(), tmp_path)
        await begin_run(store, "resumed")
        with pytest.raises(StoreCorrupt, match=r"lost entries of run live: .*podium resume live --accept-loss"):
            async with RunStore(store) as opened:
                live, whole = (Timeline(run, opened.begin_run(run)) for run in ("live", "whole"))
                await append(live, "one")
                await append(whole, "one")
                await to_thread.run_sync(back_up, cluster)
                await append(live, "two", "three")
                await continue_run(elsewhere(store), "resumed")

                await to_thread.run_sync(partial(restore, cluster, as_standby=as_standby))
                await append(whole, "two")
                await append(live, "four")

        assert [(run, count_entries(store, run)) for run in ("live", "whole")] == [("live", 1), ("whole", 2)]
        assert check(store, "whole") == ""
        if as_standby:
            with pytest.raises(StoreCorrupt, match=r"run resumed may have lost entries: .*standby.*--accept-loss"):
                check(store, "resumed")


async def test_a_run_on_a_replaced_server_refuses_to_resume_until_the_loss_is_accepted(store: PostgresAddress) -> None:
    await begin_run(store, "r")
    replace_server(store)

    with pytest.raises(StoreCorrupt, match=r"run r may have lost entries: .*--accept-loss"):
        check(store, "r")
    assert "entries lost at the end cannot be detected" in describe(store, "r")
    accept(store, "r")

    assert "this run was resumed although" in check(store, "r")
    await continue_run(store, "r")
    assert (check(store, "r"), describe(store, "r")) == ("", "")


async def test_a_run_that_is_paused_or_ended_on_a_replaced_server_is_not_resumed_by_that(
    store: PostgresAddress,
) -> None:
    await begin_run(store, "paused")
    await begin_run(store, "ended")
    replace_server(store)
    async with RunStore(store) as opened:
        for run, event in (("paused", RunPaused()), ("ended", RunEnded(outcome="cancelled"))):
            timeline = Timeline(run, await opened.claim_run(run))
            timeline.load(await opened.read_rows(run))
            timeline.append(Noticed(text="why"), scope="")
            timeline.append(event, scope="")
            await timeline.wait_written()

    with pytest.raises(StoreCorrupt, match="may have lost entries"):
        check(store, "paused")
    assert check(store, "ended") == ""


async def test_a_live_run_stops_when_the_entry_before_its_next_one_differs(store: PostgresAddress) -> None:
    with pytest.raises(StoreCorrupt, match="the store has lost entries of run r"):
        async with RunStore(store) as opened:
            lease = opened.begin_run("r")
            timeline = Timeline("r", lease)
            await append(timeline, "one", "two")
            lose_entries(store, "r", after=1)
            other = Timeline("r", lease)
            other.load(await opened.read_rows("r"))
            await append(other, "another")

            await append(timeline, "three")


async def test_the_machine_that_wrote_a_run_notices_an_older_copy_of_the_same_server(store: PostgresAddress) -> None:
    await begin_run(store, "r")
    await continue_run(store, "r")
    lose_entries(store, "r", after=2)

    with pytest.raises(StoreCorrupt, match=r"run r has lost entries: entries 3 to 4 are missing at the end"):
        check(store, "r")
    with StoreReader(store) as reader:
        assert "entries 3 to 4 are missing" in str(find_damage(store, "r", reader.read_rows("r")))
    accept(store, "r")

    assert check(store, "r") == "this run was resumed although 2 entries after 2 had been lost"
