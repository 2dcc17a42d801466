"""The limit for a tool loop: the same streamed calls with aiohttp, the function called in between, and nothing else."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from ..child import MODEL, Call, make_calls_job, serve
from ..heap import warm_up_heap
from ..tool_loop_scenario import PROMPT, REQUEST, TOOL, depth


@asynccontextmanager
async def open_caller(url: str) -> AsyncIterator[Call]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:

        async def call() -> str:
            messages = [{"role": "system", "content": PROMPT}, {"role": "user", "content": REQUEST}]
            while True:
                reply = await stream_reply(client, url, messages)
                if not reply["tool_calls"]:
                    return str(reply["content"])
                messages.append(reply)
                for use in reply["tool_calls"]:
                    text = await depth(**json.loads(use["function"]["arguments"]))
                    messages.append({"role": "tool", "tool_call_id": use["id"], "content": text})

        yield call


async def stream_reply(client: aiohttp.ClientSession, url: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the model's next message, assembled from its stream."""
    options = {"stream": True, "stream_options": {"include_usage": True}, "tools": [TOOL]}
    said: list[str] = []
    uses: list[dict[str, Any]] = []
    tail = b""
    async with client.post(
        f"{url}/chat/completions", json={"model": MODEL, "messages": messages, **options}
    ) as response:
        response.raise_for_status()
        async for data in response.content.iter_any():
            *lines, tail = (tail + data).split(b"\n")
            for line in lines:
                if line.startswith(b"data: {"):
                    for choice in json.loads(line[6:])["choices"]:
                        said.append(choice["delta"].get("content") or "")
                        for delta in choice["delta"].get("tool_calls", ()):
                            if delta["index"] == len(uses):
                                uses.append(delta)
                            else:
                                uses[delta["index"]]["function"]["arguments"] += delta["function"]["arguments"]
    return {"role": "assistant", "content": "".join(said), "tool_calls": uses}


if __name__ == "__main__":
    warm_up_heap()
    serve(calls=make_calls_job(open_caller))
