"""The limit of a team: the same six streamed calls with aiohttp, four of them at once, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from ..child import MODEL, Call, calls, serve
from ..crew import LEAD, assignments, planning, prompt_of, synthesis, task
from ..heap import settle
from .raw_chat import Message, replied


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Call]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:

        async def call() -> str:
            lead: list[Message] = [{"role": "system", "content": LEAD}, {"role": "user", "content": planning()}]
            reply = await replied(client, url, MODEL, lead)
            plan = assignments(reply)
            async with asyncio.TaskGroup() as group:
                working = [
                    group.create_task(
                        replied(
                            client,
                            url,
                            MODEL,
                            [
                                {"role": "system", "content": prompt_of(assignment["worker"])},
                                {"role": "user", "content": task(assignment)},
                            ],
                        )
                    )
                    for assignment in plan
                ]
            lead.append({"role": "assistant", "content": reply})
            lead.append({"role": "user", "content": synthesis(plan, [work.result() for work in working])})
            return await replied(client, url, MODEL, lead)

        yield call


if __name__ == "__main__":
    settle()
    serve(calls=calls(opened))
