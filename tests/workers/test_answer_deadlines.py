"""The deadlines of requests, whose clients are listed in a database that can be away."""

from __future__ import annotations

from pathlib import Path

import anyio
import psycopg

from podium.store.postgres.connection import close_idle_connections
from podium.store.store_clients import register_client
from podium.store.store_connection import open_connection
from podium.testing.postgres_cluster import PostgresCluster
from podium.values.store_address import PostgresAddress
from podium.workers.request_answers import ApprovalDeadlines

from ..fleet.history.fault_proxy import FaultProxy
from .worker_lab import LONG


async def test_deadlines_are_enforced_again_after_the_connection_to_the_database_was_cut(
    postgres_cluster: PostgresCluster, postgres_url: str, tmp_path: Path
) -> None:
    direct = PostgresAddress(postgres_url, tmp_path / "direct")
    await anyio.to_thread.run_sync(lambda: open_connection(direct, create=True).close())
    denied = anyio.Event()

    async def deny(seconds: float) -> None:
        denied.set()

    async with FaultProxy(postgres_cluster.port).listen() as proxy:
        url = postgres_url.replace(str(postgres_cluster.port), str(proxy.port))
        deadlines = ApprovalDeadlines(PostgresAddress(url, tmp_path / "behind"))
        with anyio.fail_after(LONG):
            async with anyio.create_task_group() as group:
                group.start_soon(deadlines.enforce_forever)
                while not await anyio.to_thread.run_sync(has_listed_clients, postgres_url):  # noqa: ASYNC110 - a row
                    await anyio.sleep(0.02)
                proxy.stall()
                deadlines.recheck()
                while not proxy.held:  # noqa: ASYNC110 - bytes of another process
                    await anyio.sleep(0.02)
                proxy.cut()
                proxy.flow()

                with register_client(direct):
                    deadlines.add_request("q", by="r", allowed=lambda: 0.1, deny=deny)
                    await denied.wait()
                group.cancel_scope.cancel()
    close_idle_connections()


def has_listed_clients(url: str) -> bool:
    """Return whether a connection has listed the clients, and is idle now."""
    with psycopg.connect(url) as connection:
        [(count,)] = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle' AND query LIKE 'SELECT pid FROM pg_locks%'"
            " AND datname = current_database()"
        ).fetchall()
    return bool(count)
