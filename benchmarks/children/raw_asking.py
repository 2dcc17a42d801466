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
from ..heap import warm_up_heap
from ..permission_requests import make_quantile_sample, make_request

_numbers = count()


async def ask_loop(request: dict[str, Any]) -> dict[str, float]:
    """So many `times`, with an event loop at both ends; the time that a `share` of them took at most."""
    taken: list[float] = []
    failed = 0
    reader, writer = await asyncio.open_unix_connection(request["where"])
    for line in _encode_requests(request):
        begin = time.perf_counter()
        writer.write(line)
        echoed = await reader.readexactly(len(line))
        taken.append(time.perf_counter() - begin)
        failed += echoed != line
    writer.close()
    await writer.wait_closed()
    return make_quantile_sample(taken, request["share"], failed)


async def ask_blocking(request: dict[str, Any]) -> dict[str, float]:
    """The same with two processes that do nothing else meanwhile."""
    taken: list[float] = []
    failed = 0
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(request["where"])
        for line in _encode_requests(request):
            begin = time.perf_counter()
            connection.sendall(line)
            echoed = connection.recv(len(line), socket.MSG_WAITALL)
            taken.append(time.perf_counter() - begin)
            failed += echoed != line
    return make_quantile_sample(taken, request["share"], failed)


def _encode_requests(request: dict[str, Any]) -> Iterator[bytes]:
    return (encode_line(make_request(request["what"], next(_numbers)), DEFAULT_LIMITS) for _ in range(request["times"]))


if __name__ == "__main__":
    warm_up_heap()
    serve(ask_loop=ask_loop, ask_blocking=ask_blocking)
