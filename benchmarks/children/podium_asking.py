"""A worker's end of the wire, asking for permission again and again."""

from __future__ import annotations

import time
from itertools import count
from pathlib import Path
from typing import Any

from podium.workers.wire.wire_message import Approve, Handshake, PermissionResponse
from podium.workers.wire.worker_connection import connect_to_commander

from ..child import serve
from ..heap import warm_up_heap
from ..permission_requests import WORKER, make_quantile_sample, make_request

_numbers = count()


async def ask(request: dict[str, Any]) -> dict[str, float]:
    """So many `times`, each for something else; the time that a `share` of them took at most."""
    taken: list[float] = []
    failed = 0
    async with connect_to_commander(Path(request["where"]), Handshake(worker=WORKER, token="any")) as link:
        await link.wait_accepted()
        for _ in range(request["times"]):
            message = make_request(request["what"], next(_numbers))
            begin = time.perf_counter()
            await link.send(message)
            answer = await link.receive()  # one that a person has to decide on would never come
            taken.append(time.perf_counter() - begin)
            failed += not (isinstance(answer, PermissionResponse) and answer.result == Approve(scope="once"))
    return make_quantile_sample(taken, request["share"], failed)


if __name__ == "__main__":
    warm_up_heap()
    serve(ask=ask)
