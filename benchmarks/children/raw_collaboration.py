"""The limit for a collaboration: aiohttp makes the same calls one after the other, and nothing else."""

from __future__ import annotations

from typing import Any

import aiohttp

from ..child import Clock, serve
from ..collaboration_scenario import LEAD, REPORT, list_prompts
from ..heap import warm_up_heap
from .raw_chat import stream_reply


async def collaborate(request: dict[str, Any]) -> dict[str, float]:
    """Make the calls of a team with this number of `steps`."""
    answer = ""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:
        with Clock() as clock:
            for prompt in list_prompts(request["steps"]):
                answer = await stream_reply(client, request["url"], LEAD, [{"role": "user", "content": prompt}])
    return clock.as_sample(1, failed=int(answer != REPORT))


if __name__ == "__main__":
    warm_up_heap()
    serve(collaborate=collaborate)
