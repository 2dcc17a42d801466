"""The OpenAI Agents SDK receiving streams, with one run for each; nothing is stored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import agents  # type: ignore[import-not-found]  # it is in an environment of its own
from openai import AsyncOpenAI

from ..child import MODEL, PROMPT, REQUEST
from ..stream import Call, See, StreamingJobs


@asynccontextmanager
async def open_caller(url: str, see: See | None) -> AsyncIterator[Call]:
    agents.set_tracing_disabled(True)
    async with AsyncOpenAI(base_url=url, api_key="none") as client:
        model = agents.OpenAIChatCompletionsModel(model=MODEL, openai_client=client)
        agent = agents.Agent(name="poet", instructions=PROMPT, model=model)

        async def call() -> str:
            result = agents.Runner.run_streamed(agent, REQUEST)
            async for event in result.stream_events():
                data = event.data if event.type == "raw_response_event" else None
                if see is not None and data is not None and data.type == "response.output_text.delta":
                    see(data.delta)
            return str(result.final_output)

        yield call


if __name__ == "__main__":
    StreamingJobs(open_caller).serve()
