"""The limit for a placement engine: PostgreSQL's notifications, and rows that are deleted one by one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import psycopg
from anyio import create_task_group

from ..child import serve

TABLE = "CREATE TABLE IF NOT EXISTS bare (id bigserial PRIMARY KEY, payload bytea NOT NULL)"
TAKE = "DELETE FROM bare WHERE id = (SELECT id FROM bare ORDER BY id FOR UPDATE SKIP LOCKED LIMIT 1)"


def compute_quantile(times: Sequence[float], share: float) -> float:
    """Return the time by which this share of the measured times is over."""
    return sorted(times)[min(len(times) - 1, int(len(times) * share))]


async def connect(request: dict[str, Any]) -> psycopg.AsyncConnection[Any]:
    return await psycopg.AsyncConnection.connect(request["url"], autocommit=True)


async def dispatch(request: dict[str, Any]) -> dict[str, float]:
    """Send notifications, one after the other. The time is from NOTIFY until the listener has it."""
    times: list[float] = []
    begin = 0.0
    async with await connect(request) as sender, await connect(request) as listener:
        await listener.execute("LISTEN bare")

        async def send() -> None:
            nonlocal begin
            begin = time.perf_counter()
            await sender.execute("NOTIFY bare")

        for _ in range(request["times"] + 3):
            async with create_task_group() as group:
                group.start_soon(send)
                async for _ in listener.notifies(stop_after=1):
                    times.append(time.perf_counter() - begin)
    return {"wall": compute_quantile(times[3:], request["share"])}


async def fill(request: dict[str, Any]) -> dict[str, float]:
    """Insert rows."""
    async with await connect(request) as connection:
        await connection.execute(TABLE)
        await connection.execute(
            "INSERT INTO bare (payload) SELECT '{}' FROM generate_series(1, %s)", (request["jobs"],)
        )
    return {}


async def drain(request: dict[str, Any]) -> dict[str, float]:
    """Take rows, one in each transaction, until there are none."""
    async with await connect(request) as connection:
        while (await connection.execute(TAKE)).rowcount:
            pass
    return {}


if __name__ == "__main__":
    serve(dispatch=dispatch, fill=fill, drain=drain)
