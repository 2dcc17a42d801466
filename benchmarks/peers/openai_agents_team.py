"""The OpenAI Agents SDK: a lead and four workers, the workers' runs side by side; nothing is kept of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import agents  # type: ignore[import-not-found]  # it is in an environment of its own
from openai import AsyncOpenAI  # type: ignore[import-not-found]  # likewise

from ..child import MODEL, Call, calls, serve
from ..crew import LEAD, WORKERS, assignments, planning, prompt_of, synthesis, task
from ..heap import settle


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Call]:
    agents.set_tracing_disabled(True)
    async with AsyncOpenAI(base_url=url, api_key="none") as client:
        model = agents.OpenAIChatCompletionsModel(model=MODEL, openai_client=client)
        lead = agents.Agent(name="captain", instructions=LEAD, model=model)
        workers = {name: agents.Agent(name=name, instructions=prompt_of(name), model=model) for name in WORKERS}

        async def ended(agent: Any, asked: Any) -> Any:
            result = agents.Runner.run_streamed(agent, asked)
            async for _ in result.stream_events():
                pass
            return result

        async def call() -> str:
            planned = await ended(lead, planning())
            plan = assignments(str(planned.final_output))
            results = await asyncio.gather(*(ended(workers[one["worker"]], task(one)) for one in plan))
            asked = {"role": "user", "content": synthesis(plan, [str(result.final_output) for result in results])}
            return str((await ended(lead, [*planned.to_input_list(), asked])).final_output)

        yield call


if __name__ == "__main__":
    settle()
    serve(calls=calls(opened))
