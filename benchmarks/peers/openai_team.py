"""The client of OpenAI's own package, streaming, with the team written by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from openai import AsyncOpenAI  # type: ignore[import-not-found]  # it is in an environment of its own

from ..child import MODEL, Call, calls, serve
from ..crew import LEAD, assignments, planning, prompt_of, synthesis, task
from ..heap import settle


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Call]:
    async with AsyncOpenAI(base_url=url, api_key="none") as client:

        async def replied(*messages: Any) -> str:
            said = []
            stream = await client.chat.completions.create(
                model=MODEL, messages=messages, stream=True, stream_options={"include_usage": True}
            )
            async for chunk in stream:
                for choice in chunk.choices:
                    said.append(choice.delta.content or "")
            return "".join(said)

        async def worked(assignment: dict[str, str]) -> str:
            return await replied(
                {"role": "system", "content": prompt_of(assignment["worker"])},
                {"role": "user", "content": task(assignment)},
            )

        async def call() -> str:
            asked = [{"role": "system", "content": LEAD}, {"role": "user", "content": planning()}]
            reply = await replied(*asked)
            plan = assignments(reply)
            found = await asyncio.gather(*map(worked, plan))
            said = {"role": "assistant", "content": reply}
            return await replied(*asked, said, {"role": "user", "content": synthesis(plan, found)})

        yield call


if __name__ == "__main__":
    settle()
    serve(calls=calls(opened))
