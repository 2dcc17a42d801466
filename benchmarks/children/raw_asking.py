"""The limit for asking: the same rows in SQLite, with the same pragmas, and datagrams that announce them."""

from __future__ import annotations

import os
import socket
import time
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from podium.store.store_connection import open_connection

from ..child import serve
from ..heap import warm_up_heap
from ..permission_requests import WORKER, make_quantile_sample, make_request

INSERT = "INSERT INTO entry (run, seq, epoch, kind, key, line, hash) VALUES (?, ?, 1, 'asked', '', ?, x'00')"
_numbers = count(1)


async def ask(request: dict[str, Any]) -> dict[str, float]:
    """Ask `times` times; return the time within which a `share` was answered. Answers move to the timeline, too."""
    taken: list[float] = []
    failed = 0
    folder = Path(request["where"])
    own = folder / f"asking-{os.getpid()}-{next(_numbers)}"
    with (
        closing(open_connection(folder / "raw.db", create=False)) as connection,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as wakeup,
    ):
        wakeup.bind(str(own))
        connection.execute("PRAGMA synchronous = FULL")
        for _ in range(request["times"]):
            seq = next(_numbers)
            line = msgspec.json.encode(make_request(request["what"], seq))
            begin = time.perf_counter()
            connection.execute(INSERT, (WORKER, seq, line))
            wakeup.sendto(os.fsencode(own), str(folder / "answering"))
            wakeup.recv(16)
            id, answer = connection.execute(
                "SELECT id, line FROM mail WHERE run = ? AND taken IS NULL", (WORKER,)
            ).fetchone()
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(INSERT, (WORKER, next(_numbers), answer))
            connection.execute("UPDATE mail SET taken = 1 WHERE id = ?", (id,))
            connection.execute("COMMIT")
            taken.append(time.perf_counter() - begin)
            failed += answer != line
    return make_quantile_sample(taken, request["share"], failed)


if __name__ == "__main__":
    warm_up_heap()
    serve(ask=ask)
