"""The worker's side: records a request on its timeline, announces it to the commander, gets the answer by mailbox."""

from __future__ import annotations

import time
from itertools import count
from pathlib import Path
from typing import Any

from podium.core.timeline import Timeline
from podium.store.mailbox import MailboxMessage
from podium.store.run_store import RunStore
from podium.values.event import PermissionAnswered
from podium.workers.wire.wire_message import Handshake, PermissionRequest
from podium.workers.wire.worker_connection import connect_to_commander

from ..child import serve
from ..heap import warm_up_heap
from ..permission_requests import WORKER, make_quantile_sample, make_request
from ..sample_timelines import STREAMED

_numbers = count()


async def ask(request: dict[str, Any]) -> dict[str, float]:
    """Make `times` different requests, and return the time within which a `share` of them was answered."""
    taken: list[float] = []
    failed = 0
    handshake = Handshake(worker=WORKER, token="any")
    async with (
        RunStore(Path(request["store"])) as store,
        connect_to_commander(Path(request["where"]), handshake) as link,
    ):
        timeline = await _open_timeline(store)
        await link.wait_accepted()
        for _ in range(request["times"]):
            asked = make_request(request["what"], next(_numbers))
            begin = time.perf_counter()
            timeline.append(asked, scope="", operation="worker")
            await timeline.wait_written()
            await link.send(PermissionRequest(request=asked.id))
            # An answer that needs a person would never come.
            answer = await timeline.index.requests.wait_answer(asked.id)
            await timeline.wait_written()
            taken.append(time.perf_counter() - begin)
            failed += not (isinstance(answer, PermissionAnswered) and answer.decision == "once")
    return make_quantile_sample(taken, request["share"], failed)


async def _open_timeline(store: RunStore) -> Timeline:
    """Open the worker's timeline, to which messages in the mailbox are moved as they arrive."""
    rows = await store.read_rows(WORKER)
    lease = await store.claim_run(WORKER) if rows else store.begin_run(WORKER)
    timeline = Timeline(WORKER, lease)
    timeline.load(rows)
    timeline.append(STREAMED, scope="", operation="worker")

    def deliver(message: MailboxMessage) -> None:
        timeline.append(message.event, scope="", mail=message.id)

    lease.deliver = deliver
    await timeline.wait_written()
    return timeline


if __name__ == "__main__":
    warm_up_heap()
    serve(ask=ask)
