"""Servers whose replies are defined byte by byte, and other helpers for testing the HTTP adapters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import msgspec

from podium.core.engine import Text, Tool, ToolAnswer
from podium.core.scope import Scope
from podium.engines.model.model_wire import Message, ModelCall, ReplyPart, Wire
from podium.values.errors import OutsideFailed
from podium.values.event import ToolUse

KEY = "sk-very-secret"


async def fail_if_called(use: ToolUse, scope: Scope) -> ToolAnswer:
    raise NotImplementedError


LOOK = Tool(name="look", description="Looks.", parameters={"type": "object", "properties": {}}, answer=fail_if_called)


def make_call(*messages: Message, key: str = "run/turn#1/call#1", tools: tuple[Tool, ...] = ()) -> ModelCall:
    conversation = messages or (Message(role="user", text="hi"),)
    return ModelCall(agent="a", model="m", system="You are a.", messages=conversation, tools=tools, key=key)


async def collect_parts(wire: Wire, call: ModelCall) -> list[ReplyPart]:
    async with aclosing(wire.stream(call)) as stream:
        return [part async for part in stream]


def merge_texts(parts: list[ReplyPart]) -> list[ReplyPart]:
    """Join adjacent pieces of text, because how text is split depends on the network."""
    joined: list[ReplyPart] = []
    for part in parts:
        if isinstance(part, Text) and joined and isinstance(joined[-1], Text):
            joined[-1] = Text(joined[-1].text + part.text)
        else:
            joined.append(part)
    return joined


def make_failure(what: str, **facts: Any) -> OutsideFailed:
    return OutsideFailed(f"it {what}", **facts)


class RawServer:
    """A server that answers each request with the next of its replies, and then optionally closes the connection."""

    def __init__(self, replies: Sequence[bytes], *, closes: bool) -> None:
        self.replies = list(replies)
        self.closes = closes
        self.connections = 0
        self.request_lines: list[str] = []
        self.bodies: list[Any] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while self.replies:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length:"))
                self.bodies.append(msgspec.json.decode(await reader.readexactly(length)))
                self.request_lines.append(head.decode().partition("\r\n")[0])
                writer.write(self.replies.pop(0))
                await writer.drain()
                if self.closes:
                    break
            else:
                await reader.read()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the other side may have disconnected already
        finally:
            writer.close()


@asynccontextmanager
async def serve_replies(replies: Sequence[bytes], *, closes: bool = False) -> AsyncIterator[RawServer]:
    raw_server = RawServer(replies, closes=closes)
    server = await asyncio.start_server(raw_server.serve, "127.0.0.1", 0)
    raw_server.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    async with server:
        yield raw_server


STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk_body(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)


def http_response(body: bytes, status: str = "200 OK", headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body
