"""The limit for calling a model: the same streamed call with aiohttp, its pieces joined, and nothing else."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from ..child import MODEL, PROMPT, REQUEST, Call, make_calls_job, make_memory_job, serve

PAYLOAD = {
    "model": MODEL,
    "messages": [{"role": "system", "content": PROMPT}, {"role": "user", "content": REQUEST}],
    "stream": True,
    "stream_options": {"include_usage": True},
}


@asynccontextmanager
async def open_caller(url: str) -> AsyncIterator[Call]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:

        async def call() -> str:
            said, tail = [], b""
            async with client.post(f"{url}/chat/completions", json=PAYLOAD) as response:
                response.raise_for_status()
                # Reading line by line with aiohttp's own method takes a sixth longer.
                async for data in response.content.iter_any():
                    *lines, tail = (tail + data).split(b"\n")
                    for line in lines:
                        if line.startswith(b"data: {"):
                            for choice in json.loads(line[6:])["choices"]:
                                said.append(choice["delta"].get("content") or "")
            return "".join(said)

        yield call


if __name__ == "__main__":
    serve(calls=make_calls_job(open_caller), memory=make_memory_job(open_caller))
