"""The OpenAI Agents SDK: a lead and four workers, the workers' runs in parallel; nothing is stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import agents  # type: ignore[import-not-found]  # it is in an environment of its own
from openai import AsyncOpenAI

from ..child import MODEL, Call, make_calls_job, serve
from ..heap import warm_up_heap
from ..team_scenario import (
    LEAD,
    WORKERS,
    parse_assignments,
    planning_prompt,
    synthesis_prompt,
    task_prompt,
    worker_prompt,
)


@asynccontextmanager
async def open_caller(url: str) -> AsyncIterator[Call]:
    agents.set_tracing_disabled(True)
    async with AsyncOpenAI(base_url=url, api_key="none") as client:
        model = agents.OpenAIChatCompletionsModel(model=MODEL, openai_client=client)
        lead = agents.Agent(name="captain", instructions=LEAD, model=model)
        workers = {name: agents.Agent(name=name, instructions=worker_prompt(name), model=model) for name in WORKERS}

        async def run_agent(agent: Any, asked: Any) -> Any:
            result = agents.Runner.run_streamed(agent, asked)
            async for _ in result.stream_events():
                pass
            return result

        async def call() -> str:
            planned = await run_agent(lead, planning_prompt())
            plan = parse_assignments(str(planned.final_output))
            results = await asyncio.gather(*(run_agent(workers[one["worker"]], task_prompt(one)) for one in plan))
            asked = {
                "role": "user",
                "content": synthesis_prompt(plan, [str(result.final_output) for result in results]),
            }
            return str((await run_agent(lead, [*planned.to_input_list(), asked])).final_output)

        yield call


if __name__ == "__main__":
    warm_up_heap()
    serve(calls=make_calls_job(open_caller))
