"""A streamed call with aiohttp, its pieces joined, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import aiohttp

Message = dict[str, str]


async def stream_reply(
    client: aiohttp.ClientSession,
    url: str,
    model: str,
    messages: Sequence[Message],
    *,
    tools: Sequence[dict[str, Any]] = (),
) -> str:
    """Return the model's reply to these messages."""
    payload = {"model": model, "messages": messages, "stream": True, "stream_options": {"include_usage": True}}
    if tools:
        payload["tools"] = tools
    said, tail = [], b""
    async with client.post(f"{url}/chat/completions", json=payload) as response:
        response.raise_for_status()
        async for data in response.content.iter_any():
            *lines, tail = (tail + data).split(b"\n")
            for line in lines:
                if line.startswith(b"data: {"):
                    for choice in json.loads(line[6:])["choices"]:
                        said.append(choice["delta"].get("content") or "")
    return "".join(said)
