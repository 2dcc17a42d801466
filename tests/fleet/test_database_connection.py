"""A connection to a database that goes away, comes back, or gives no answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
from anyio import create_task_group, fail_after

from podium.fleet.fleet_database import DatabaseConnection
from podium.testing.postgres_cluster import PostgresCluster
from podium.values.errors import PlacementUnavailable, StoreFailed


@pytest.fixture(scope="module")
def url(postgres_cluster: PostgresCluster) -> Iterator[str]:
    yield postgres_cluster.create_database("connections")
    postgres_cluster.drop_database("connections")


class StallingProxy:
    """Forwards bytes to a server until it is told to stall."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._is_stalled = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[int]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        yield server.sockets[0].getsockname()[1]
        server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    def stall(self, is_stalled: bool) -> None:
        (self._is_stalled.set if is_stalled else self._is_stalled.clear)()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_server = await asyncio.open_connection("127.0.0.1", self._server_port)
        for source, sink in ((reader, to_server[1]), (to_server[0], writer)):
            self._tasks.add(asyncio.create_task(self._forward(source, sink)))

    async def _forward(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                if not self._is_stalled.is_set():
                    sink.write(data)
        finally:
            sink.close()


async def test_a_server_that_gives_no_answer_is_given_up_and_connected_again(url: str) -> None:
    address = urlsplit(url)
    assert address.port is not None
    proxy = StallingProxy(address.port)
    async with proxy.listen() as port:
        database = DatabaseConnection(url.replace(str(address.port), str(port)), answer_seconds=0.3)
        assert await database.fetch("SELECT 1 AS one") == [{"one": 1}]

        proxy.stall(True)
        with fail_after(10), pytest.raises(PlacementUnavailable):
            await database.fetch("SELECT 2")
        proxy.stall(False)

        assert await database.fetch("SELECT 3 AS three") == [{"three": 3}]
        await database.aclose()


async def test_a_session_that_the_server_has_ended_is_replaced_unnoticed(url: str) -> None:
    one, other = DatabaseConnection(url), DatabaseConnection(url)
    [row] = await one.fetch("SELECT pg_backend_pid() AS pid")

    await other.execute("SELECT pg_terminate_backend($1, 5000)", row["pid"])

    assert await one.fetch("SELECT 1 AS one") == [{"one": 1}]
    await one.aclose()
    await other.aclose()


async def test_a_statement_that_is_refused_says_why_and_leaves_the_connection_usable(url: str) -> None:
    database = DatabaseConnection(url)

    with pytest.raises(
        StoreFailed, match='the fleet\'s database refused a statement: relation "nothing" does not exist'
    ):
        await database.fetch("SELECT * FROM nothing")

    assert await database.fetch("SELECT 1 AS one") == [{"one": 1}]
    await database.aclose()


async def test_a_cancelled_statement_does_not_disturb_the_next_one(url: str) -> None:
    database = DatabaseConnection(url)
    async with create_task_group() as group:
        group.start_soon(database.fetch, "SELECT pg_sleep(60)")
        await asyncio.sleep(0.2)
        group.cancel_scope.cancel()

    assert await database.fetch("SELECT 1 AS one") == [{"one": 1}]
    await database.aclose()


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(PlacementUnavailable, match="cannot connect to the fleet's database"):
        await DatabaseConnection("postgresql://podium@127.0.0.1:1/none").fetch("SELECT 1")
