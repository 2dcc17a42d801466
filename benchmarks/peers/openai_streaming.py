"""The client from OpenAI's own package receiving streams, as its documentation shows it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from openai import AsyncOpenAI

from ..child import MODEL, PROMPT, REQUEST
from ..stream import Call, See, StreamingJobs


@asynccontextmanager
async def open_caller(url: str, see: See | None) -> AsyncIterator[Call]:
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
                    text = choice.delta.content or ""
                    said.append(text)
                    if see is not None:
                        see(text)
            return "".join(said)

        yield call


if __name__ == "__main__":
    StreamingJobs(open_caller).serve()
