"""The limit for a timeline in PostgreSQL: psycopg inserting rows that are already built, in pipelined transactions."""

from __future__ import annotations

import secrets
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg

from podium.store.store_connection import open_connection
from podium.values.store_address import PostgresAddress

from ..child import Clock, serve
from .raw_sqlite import build_rows

INSERT = (
    "INSERT INTO podium.entry (run, seq, epoch, kind, key, line, hash) SELECT * FROM"
    " unnest(%s::text[], %s::bigint[], %s::bigint[], %s::text[], %s::text[], %s::bytea[], %s::bytea[])"
)


async def append(request: dict[str, Any]) -> dict[str, float]:
    """Insert the same number of rows, in transactions of `runs` times `settled` rows, each one round trip."""
    runs, each = request["runs"], request["each"]
    batch = runs * request["settled"]
    mark = secrets.token_hex(4)
    rows = sorted(build_rows(runs, each), key=lambda row: row.seq)
    rows = [row._replace(run=f"{mark}-{row.run}") for row in rows]
    batches = [list(map(list, zip(*rows[at : at + batch], strict=True))) for at in range(0, len(rows), batch)]
    open_connection(PostgresAddress(request["url"], Path()), create=True).close()
    with closing(psycopg.connect(request["url"], autocommit=True)) as connection:
        with Clock() as clock:
            for columns in batches:
                with connection.pipeline():
                    connection.execute("BEGIN")
                    connection.execute(INSERT, columns)
                    connection.execute("COMMIT")
        found = connection.execute("SELECT count(*) FROM podium.entry WHERE run LIKE %s", (f"{mark}-%",)).fetchone()
    written = 0 if found is None else found[0]
    return clock.as_sample(len(rows), failed=len(rows) - written)


if __name__ == "__main__":
    serve(append=append)
