"""The limit for a fleet: the transactions that a run needs, by `psycopg` alone, with rows that are already built."""

from __future__ import annotations

from typing import Any

import psycopg
from anyio import create_task_group

from ..child import serve

SLOTS = 4

TABLES = (
    "CREATE TABLE IF NOT EXISTS bare_run (id bigint PRIMARY KEY, owner text, epoch bigint NOT NULL)",
    "CREATE TABLE IF NOT EXISTS bare_queue (id bigint PRIMARY KEY, claimed boolean NOT NULL)",
    "CREATE TABLE IF NOT EXISTS bare_entry (run bigint, seq bigint, line bytea NOT NULL, PRIMARY KEY (run, seq))",
)
CLAIM = (
    "UPDATE bare_queue SET claimed = true WHERE id ="
    " (SELECT id FROM bare_queue WHERE NOT claimed ORDER BY id FOR UPDATE SKIP LOCKED LIMIT 1) RETURNING id"
)
LEASE = "UPDATE bare_run SET owner = %s, epoch = epoch + 1 WHERE id = %s"
APPEND = "INSERT INTO bare_entry SELECT %s, seq, %s FROM generate_series(%s::bigint, %s::bigint) AS seq"
FINISH = "DELETE FROM bare_queue WHERE id = %s"


async def connect(request: dict[str, Any]) -> psycopg.AsyncConnection[Any]:
    return await psycopg.AsyncConnection.connect(request["url"], autocommit=True)


async def fill(request: dict[str, Any]) -> dict[str, float]:
    """Insert the rows of runs and of their jobs."""
    async with await connect(request) as connection:
        for table in TABLES:
            await connection.execute(table.encode())
        await connection.execute("TRUNCATE bare_run, bare_queue, bare_entry")
        await connection.execute(
            "INSERT INTO bare_run SELECT id, '', 1 FROM generate_series(1, %s) id", (request["runs"],)
        )
        await connection.execute("INSERT INTO bare_queue SELECT id, false FROM bare_run")
    return {}


async def work(request: dict[str, Any]) -> dict[str, float]:
    """Claim, lease, append and finish until there are no more runs, on as many connections as a host has slots."""
    async with create_task_group() as group:
        for _ in range(SLOTS):
            group.start_soon(work_in_slot, request)
    return {}


async def work_in_slot(request: dict[str, Any]) -> None:
    """Work on one run after the other, with one transaction for each step.

    `commits` transactions append `rows` rows of `size` bytes each, as many as a run of Podium's has.
    """
    line, rows = b"x" * request["size"], request["rows"]
    async with await connect(request) as connection:
        while found := await (await connection.execute(CLAIM)).fetchone():
            run = found[0]
            await connection.execute(LEASE, ("bare", run))
            for number in range(request["commits"]):
                await connection.execute(APPEND, (run, line, number * rows, (number + 1) * rows - 1))
            await connection.execute(FINISH, (run,))


if __name__ == "__main__":
    serve(fill=fill, work=work)
