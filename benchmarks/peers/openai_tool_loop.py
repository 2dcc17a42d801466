"""The client from OpenAI's own package, streaming, with the loop written by hand."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from openai import AsyncOpenAI

from ..child import MODEL, Call, make_calls_job, serve
from ..heap import warm_up_heap
from ..tool_loop_scenario import PROMPT, REQUEST, TOOL, depth


@asynccontextmanager
async def open_caller(url: str) -> AsyncIterator[Call]:
    async with AsyncOpenAI(base_url=url, api_key="none") as client:

        async def call() -> str:
            tools: list[Any] = [TOOL]
            messages: list[Any] = [{"role": "system", "content": PROMPT}, {"role": "user", "content": REQUEST}]
            while True:
                # The package's own way to assemble a streamed reply.
                async with client.chat.completions.stream(
                    model=MODEL, messages=messages, tools=tools, stream_options={"include_usage": True}
                ) as stream:
                    message = (await stream.get_final_completion()).choices[0].message
                if not message.tool_calls:
                    return str(message.content)
                messages.append(message)
                for use in message.tool_calls:
                    text = await depth(**json.loads(use.function.arguments))
                    messages.append({"role": "tool", "tool_call_id": use.id, "content": text})

        yield call


if __name__ == "__main__":
    warm_up_heap()
    serve(calls=make_calls_job(open_caller))
