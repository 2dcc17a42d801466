"""The limit for streaming: aiohttp reads the replies, their pieces are parsed and joined, and nothing else."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from ..child import MODEL, PROMPT, REQUEST
from ..stream import Call, See, StreamingJobs

PAYLOAD = {
    "model": MODEL,
    "messages": [{"role": "system", "content": PROMPT}, {"role": "user", "content": REQUEST}],
    "stream": True,
    "stream_options": {"include_usage": True},
}


@asynccontextmanager
async def open_caller(url: str, see: See | None) -> AsyncIterator[Call]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:

        async def call() -> str:
            said, tail = [], b""
            async with client.post(f"{url}/chat/completions", json=PAYLOAD) as response:
                response.raise_for_status()
                async for data in response.content.iter_any():
                    *lines, tail = (tail + data).split(b"\n")
                    for line in lines:
                        if line.startswith(b"data: {"):
                            for choice in json.loads(line[6:])["choices"]:
                                text = choice["delta"].get("content") or ""
                                said.append(text)
                                if see is not None:
                                    see(text)
            return "".join(said)

        yield call


if __name__ == "__main__":
    StreamingJobs(open_caller).serve()
