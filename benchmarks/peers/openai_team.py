"""The client from OpenAI's own package, streaming, with the team written by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from openai import AsyncOpenAI

from ..child import MODEL, Call, make_calls_job, serve
from ..heap import warm_up_heap
from ..team_scenario import LEAD, parse_assignments, planning_prompt, synthesis_prompt, task_prompt, worker_prompt


@asynccontextmanager
async def open_caller(url: str) -> AsyncIterator[Call]:
    async with AsyncOpenAI(base_url=url, api_key="none") as client:

        async def stream_reply(*messages: Any) -> str:
            said = []
            stream = await client.chat.completions.create(
                model=MODEL, messages=messages, stream=True, stream_options={"include_usage": True}
            )
            async for chunk in stream:
                for choice in chunk.choices:
                    said.append(choice.delta.content or "")
            return "".join(said)

        async def run_worker(assignment: dict[str, str]) -> str:
            return await stream_reply(
                {"role": "system", "content": worker_prompt(assignment["worker"])},
                {"role": "user", "content": task_prompt(assignment)},
            )

        async def call() -> str:
            asked = [{"role": "system", "content": LEAD}, {"role": "user", "content": planning_prompt()}]
            reply = await stream_reply(*asked)
            plan = parse_assignments(reply)
            found = await asyncio.gather(*map(run_worker, plan))
            said = {"role": "assistant", "content": reply}
            return await stream_reply(*asked, said, {"role": "user", "content": synthesis_prompt(plan, found)})

        yield call


if __name__ == "__main__":
    warm_up_heap()
    serve(calls=make_calls_job(open_caller))
