"""What only a PostgreSQL store does: it survives an unavailable server, and many machines share it."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import anyio
import psycopg
import pytest
from anyio import create_task_group, to_thread

from podium.core.journal_rows import find_chain_break
from podium.core.timeline import Timeline
from podium.store import store_connection
from podium.store.entry_feed import EntryFeed
from podium.store.follower import Follower
from podium.store.postgres import commit as postgres_commit
from podium.store.postgres.connection import close_idle_connections
from podium.store.postgres.login import build_connection_options
from podium.store.postgres.schema import load_migrations
from podium.store.reader import StoreReader
from podium.store.run_store import RunLease, RunStore, StoreWriter
from podium.store.store_clients import list_clients, register_client
from podium.store.store_connection import open_connection
from podium.store.store_write import Write
from podium.testing.postgres_cluster import PostgresCluster, run_cluster
from podium.values.errors import Mistake, StoreFailed
from podium.values.event import Noticed, RunEnded
from podium.values.store_address import PostgresAddress

from .conftest import empty_store


@pytest.fixture
def store(store_database: str, tmp_path: Path) -> PostgresAddress:
    address = PostgresAddress(store_database, tmp_path / "runtime")
    empty_store(address)
    return address


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[PostgresCluster]:
    """A server that the tests of this module stop and start."""
    with run_cluster() as cluster:
        yield cluster


async def append_notices(timeline: Timeline, count: int) -> None:
    for number in range(count):
        timeline.append(Noticed(text=str(number)), scope="")
        await timeline.wait_written()


@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_appends_and_followers_wait_for_a_server_that_restarts(
    own_cluster: PostgresCluster, tmp_path: Path, mode: str
) -> None:
    store = PostgresAddress(own_cluster.create_database(f"restart_{mode}"), tmp_path)
    seen: list[int] = []

    async def follow() -> None:
        with Follower(store, "r") as entries:
            async for entry in entries:
                seen.append(entry.seq)

    async with RunStore(store) as opened, create_task_group() as group:
        timeline = Timeline("r", opened.begin_run("r"))
        await append_notices(timeline, 20)
        group.start_soon(follow)
        await to_thread.run_sync(own_cluster.stop, mode)
        async with create_task_group() as meanwhile:
            meanwhile.start_soon(append_notices, timeline, 20)
            await to_thread.run_sync(own_cluster.start)
        timeline.append(RunEnded(outcome="succeeded"), scope="")
        await timeline.wait_written()

    assert seen == list(range(1, 42))
    with StoreReader(store) as reader:
        assert find_chain_break(reader.read_rows("r")) is None


async def test_a_server_that_stays_away_is_named_and_the_run_goes_on_later(
    own_cluster: PostgresCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PostgresAddress(own_cluster.create_database("away"), tmp_path)
    monkeypatch.setattr(postgres_commit, "AWAY_SECONDS", 0.3)

    with suppress(StoreFailed):
        async with RunStore(store) as opened:
            timeline = Timeline("r", opened.begin_run("r"))
            await append_notices(timeline, 1)
            await to_thread.run_sync(own_cluster.stop)
            try:
                with pytest.raises(StoreFailed, match=r"cannot reach the store postgresql://.*; start the server"):
                    await append_notices(timeline, 1)
            finally:
                await to_thread.run_sync(own_cluster.start)

    async with RunStore(store) as opened:
        lease = await opened.claim_run("r")
        again = Timeline("r", lease)
        again.load(await opened.read_rows("r"))
        await append_notices(again, 1)
    with StoreReader(store) as reader:
        assert find_chain_break(reader.read_rows("r")) is None
        assert len(reader.read_rows("r")) == 2


class CuttingProxy:
    """Passes bytes on to a server until `cut_after` says that a message of the client was the last one."""

    def __init__(self, port: int, cut_after: Callable[[bytes], bool]) -> None:
        self._port, self._cut_after = port, cut_after
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._port))
                threading.Thread(target=self._pass_on, args=(client, server), daemon=True).start()
                threading.Thread(target=self._pass_back, args=(server, client), daemon=True).start()

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError), client:
            while data := client.recv(1 << 20):
                if self._cut_after(data):
                    self.cuts += 1
                    client.shutdown(socket.SHUT_RDWR)  # the answer never arrives
                    server.sendall(data)
                    server.shutdown(socket.SHUT_WR)
                    return
                server.sendall(data)
            server.shutdown(socket.SHUT_RDWR)

    def _pass_back(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError), server:
            while data := server.recv(1 << 20):
                client.sendall(data)

    def close(self) -> None:
        self._listener.close()


async def test_a_connection_cut_in_the_middle_of_a_commit_appends_nothing_twice(
    store: PostgresAddress, postgres_cluster: PostgresCluster
) -> None:
    left = iter([False, True, False, True])

    def is_append(data: bytes) -> bool:
        return b"COMMIT" in data and next(left, False)

    with closing(CuttingProxy(postgres_cluster.port, is_append)) as proxy:
        behind = PostgresAddress(store.url.replace(f":{postgres_cluster.port}/", f":{proxy.port}/"), store.folder)
        async with RunStore(behind) as opened:
            timeline = Timeline("r", opened.begin_run("r"))
            await append_notices(timeline, 10)

    assert proxy.cuts == 2
    with StoreReader(store) as reader:
        assert [row.seq for row in reader.read_rows("r")] == list(range(1, 11))
        assert find_chain_break(reader.read_rows("r")) is None


async def test_the_feed_never_skips_an_entry_that_is_committed_late(store: PostgresAddress) -> None:
    insert = (
        "INSERT INTO podium.entry (run, seq, epoch, kind, key, line, hash) VALUES (%s, 1, 1, 'noticed', '', '', '')"
    )
    with (
        EntryFeed(store) as feed,
        closing(psycopg.connect(store.url)) as early,
        closing(psycopg.connect(store.url)) as late,
    ):
        early.execute(insert, ("early",))
        late.execute(insert, ("late",))
        late.commit()
        before = [row.run for row in feed.read_after(0, 10)]
        early.commit()
        rows = feed.read_after(0, 10)

        assert before == []
        assert [row.run for row in rows] == ["early", "late"]
        assert feed.find_position(rows[0].cursor) == rows[0].position
        assert [row.run for row in feed.read_after(rows[0].position, 10)] == ["late"]
        assert feed.find_end() == rows[1]


def test_clients_on_any_machine_are_counted_while_they_are_connected(store: PostgresAddress) -> None:
    elsewhere = PostgresAddress(store.url, store.folder / "elsewhere")

    with register_client(elsewhere):
        while not (seen := list_clients(store)):
            pass
    while list_clients(store):
        pass

    assert len(seen) == 1


def test_each_machine_sees_its_own_worktrees(store: PostgresAddress) -> None:
    with closing(open_connection(store, create=False)) as connection:
        connection.execute(
            "INSERT INTO worktree_of_host (host, path, repository, branch, base, run, git_dir, is_new_branch, state,"
            " created, size) VALUES ('elsewhere', '/x', '/r', 'b', '', '', '', 1, 'ready', 0, 0)"
        )
        here = connection.execute("SELECT count(*) FROM worktree").fetchone()

    assert here == (0,)


def test_a_store_of_a_newer_release_is_refused(postgres_url: str, tmp_path: Path) -> None:
    store = PostgresAddress(postgres_url, tmp_path)
    open_connection(store, create=True).close()
    newer = load_migrations()[-1].number + 1
    with closing(psycopg.connect(postgres_url, autocommit=True)) as connection:
        connection.execute(
            "INSERT INTO podium.schema_version (number, name, release) VALUES (%s, 'later', '9')", (newer,)
        )

    close_idle_connections()

    with pytest.raises(StoreFailed, match=rf"was migrated by a newer Podium \(store version {newer}\); this is Podium"):
        StoreReader(PostgresAddress(postgres_url, tmp_path / "other"))


def test_a_login_that_may_not_create_the_store_is_told_who_may(
    postgres_cluster: PostgresCluster, postgres_url: str, tmp_path: Path
) -> None:
    with closing(psycopg.connect(postgres_url, autocommit=True)) as connection:
        connection.execute("DROP ROLE IF EXISTS guest")
        connection.execute("CREATE ROLE guest LOGIN")
    guest = PostgresAddress(postgres_url.replace("podium@", "guest@"), tmp_path)

    with pytest.raises(StoreFailed, match="the login 'guest' cannot migrate the store; open the store once as"):
        StoreReader(guest)


def test_a_server_that_does_not_run_is_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match=r"cannot reach the store postgresql://me@127.0.0.1:1/db \(.*refused") as said:
        StoreReader(PostgresAddress("postgresql://me:secret@127.0.0.1:1/db", tmp_path))

    assert "secret" not in str(said.value)


async def test_a_process_that_is_started_by_a_connected_one_waits_for_a_server_that_is_away(
    own_cluster: PostgresCluster, tmp_path: Path
) -> None:
    store = PostgresAddress(own_cluster.create_database("expected"), tmp_path)
    program = (
        "import sys; from pathlib import Path;"
        "from podium.store.store_connection import expect_store, open_connection;"
        "from podium.values.store_address import PostgresAddress;"
        "store = PostgresAddress(sys.argv[1], Path(sys.argv[2])); expect_store(store);"
        "print('away', flush=True); open_connection(store, create=True).close()"
    )
    await to_thread.run_sync(own_cluster.stop)
    try:
        process = await anyio.open_process([sys.executable, "-c", program, store.url, str(tmp_path)], stderr=None)
        assert process.stdout is not None
        await process.stdout.receive()
    finally:
        await to_thread.run_sync(own_cluster.start)

    assert await process.wait() == 0


async def test_an_unexpected_error_of_a_commit_is_reported_and_no_later_write_waits_forever() -> None:
    class FailingCommitter:
        def try_commit_at_once(self, writes: Sequence[Write]) -> bool:
            return False

        def commit(self, writes: Sequence[Write]) -> None:
            raise IndexError("position out of bound")

        def close(self) -> None:
            pass

    holder = RunLease(cast(Any, None), "r", epoch=1)
    writer = StoreWriter(FailingCommitter(), on_written=lambda: None)

    with anyio.fail_after(30):
        await writer.enqueue(Write(holder)).done.wait()
        await writer.aclose()

    assert "IndexError('position out of bound')" in str(holder.error)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://db.example/podium",
        "postgresql://db.example/podium?sslmode=require",
        "postgresql://localhost,db.example/podium",
        "postgresql://localhost/podium?hostaddr=192.0.2.1",
        "postgresql:///podium?service=fleet",
    ],
)
def test_a_connection_to_another_machine_needs_verified_tls(url: str, tmp_path: Path) -> None:
    with pytest.raises(Mistake, match=r"is not verified by TLS; add .sslmode=verify-full to the address"):
        build_connection_options(PostgresAddress(url, tmp_path), {})


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:///podium",
        "postgresql://localhost/podium",
        "postgresql://[::1]/podium",
        "postgresql://db.example/podium?sslmode=verify-full&sslrootcert=ca.pem",
    ],
)
def test_a_connection_on_this_machine_or_with_verified_tls_is_made(url: str, tmp_path: Path) -> None:
    assert build_connection_options(PostgresAddress(url, tmp_path), {"a": "b"})["options"] == "-c a=b"


def test_without_the_packages_one_sentence_says_how_to_install_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)

    with pytest.raises(StoreFailed, match=r"pipx install --force 'podium\[fleet\]' or pip install"):
        store_connection.open_connection(PostgresAddress("postgresql:///x", tmp_path), create=True)


def test_many_processes_may_come_to_a_new_database_at_the_same_moment(postgres_url: str, tmp_path: Path) -> None:
    failures: list[BaseException] = []

    def open_store(number: int) -> None:
        try:
            open_connection(PostgresAddress(postgres_url, tmp_path / str(number)), create=True).close()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=partial(open_store, number)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []


async def test_a_message_reaches_the_owner_on_another_machine_within_a_second(store: PostgresAddress) -> None:
    elsewhere = PostgresAddress(store.url, store.folder / "elsewhere")
    with anyio.fail_after(10):
        async with RunStore(store) as opened:
            timeline = Timeline("r", opened.begin_run("r"))
            await append_notices(timeline, 1)
            with Follower(elsewhere, "r", after=1) as entries:
                await append_notices(timeline, 1)
                assert (await anext(entries)).seq == 2
