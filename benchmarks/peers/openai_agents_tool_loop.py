"""The OpenAI Agents SDK: one agent with a function as its tool, the run streamed to the end; nothing is stored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import agents  # type: ignore[import-not-found]  # it is in an environment of its own
from openai import AsyncOpenAI

from ..child import MODEL, Call, make_calls_job, serve
from ..heap import warm_up_heap
from ..tool_loop_scenario import PROMPT, REQUEST, depth


@asynccontextmanager
async def open_caller(url: str) -> AsyncIterator[Call]:
    agents.set_tracing_disabled(True)
    async with AsyncOpenAI(base_url=url, api_key="none") as client:
        model = agents.OpenAIChatCompletionsModel(model=MODEL, openai_client=client)
        agent = agents.Agent(name="pilot", instructions=PROMPT, model=model, tools=[agents.function_tool(depth)])

        async def call() -> str:
            result = agents.Runner.run_streamed(agent, REQUEST)
            async for _ in result.stream_events():
                pass
            return str(result.final_output)

        yield call


if __name__ == "__main__":
    warm_up_heap()
    serve(calls=make_calls_job(open_caller))
