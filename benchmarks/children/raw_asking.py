"""The limit of asking: as many bytes as the worker would send, and the same bytes back."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

from podium.workers.wire.link import DEFAULT_LIMITS, encode_line

from ..child import serve
from ..clearance import request, shared
from ..heap import settle

_numbers = count()


async def ask_loop(asked: dict[str, Any]) -> dict[str, float]:
    """So many `times`, with an event loop at both ends; the time that a `share` of them took at most."""
    taken: list[float] = []
    failed = 0
    reader, writer = await asyncio.open_unix_connection(asked["where"])
    for line in _lines(asked):
        begin = time.perf_counter()
        writer.write(line)
        heard = await reader.readexactly(len(line))
        taken.append(time.perf_counter() - begin)
        failed += heard != line
    writer.close()
    await writer.wait_closed()
    return shared(taken, asked["share"], failed)


async def ask_blocking(asked: dict[str, Any]) -> dict[str, float]:
    """The same with two processes that do nothing else meanwhile."""
    taken: list[float] = []
    failed = 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(asked["where"])
        for line in _lines(asked):
            begin = time.perf_counter()
            connection.sendall(line)
            heard = connection.recv(len(line), socket.MSG_WAITALL)
            taken.append(time.perf_counter() - begin)
            failed += heard != line
    return shared(taken, asked["share"], failed)


def _lines(asked: dict[str, Any]) -> Iterator[bytes]:
    return (encode_line(request(asked["what"], next(_numbers)), DEFAULT_LIMITS) for _ in range(asked["times"]))


if __name__ == "__main__":
    settle()
    serve(ask_loop=ask_loop, ask_blocking=ask_blocking)
