"""The limit for a team: the same six streamed calls with aiohttp, four of them at once, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from ..child import MODEL, Call, make_calls_job, serve
from ..heap import warm_up_heap
from ..team_scenario import LEAD, parse_assignments, planning_prompt, synthesis_prompt, task_prompt, worker_prompt
from .raw_chat import Message, stream_reply


@asynccontextmanager
async def open_caller(url: str) -> AsyncIterator[Call]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:

        async def call() -> str:
            lead: list[Message] = [{"role": "system", "content": LEAD}, {"role": "user", "content": planning_prompt()}]
            reply = await stream_reply(client, url, MODEL, lead)
            plan = parse_assignments(reply)
            async with asyncio.TaskGroup() as group:
                working = [
                    group.create_task(
                        stream_reply(
                            client,
                            url,
                            MODEL,
                            [
                                {"role": "system", "content": worker_prompt(assignment["worker"])},
                                {"role": "user", "content": task_prompt(assignment)},
                            ],
                        )
                    )
                    for assignment in plan
                ]
            lead.append({"role": "assistant", "content": reply})
            lead.append({"role": "user", "content": synthesis_prompt(plan, [work.result() for work in working])})
            return await stream_reply(client, url, MODEL, lead)

        yield call


if __name__ == "__main__":
    warm_up_heap()
    serve(calls=make_calls_job(open_caller))
