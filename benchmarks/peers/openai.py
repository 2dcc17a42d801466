"""The client from OpenAI's own package, streaming, as its documentation shows it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from openai import AsyncOpenAI

from ..child import MODEL, PROMPT, REQUEST, Call, make_calls_job, serve


@asynccontextmanager
async def open_caller(url: str) -> AsyncIterator[Call]:
    async with AsyncOpenAI(base_url=url, api_key="none") as client:

        async def call() -> str:
            said = []
            stream = await client.chat.completions.create(
                model=MODEL,
                messages=[{"role": "system", "content": PROMPT}, {"role": "user", "content": REQUEST}],
                stream=True,
                stream_options={"include_usage": True},
            )
            async for chunk in stream:
                for choice in chunk.choices:
                    said.append(choice.delta.content or "")
            return "".join(said)

        yield call


if __name__ == "__main__":
    serve(calls=make_calls_job(open_caller))
