"""An MCP server over HTTP, for an older protocol version with sessions, whose answers a test chooses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import msgspec
from aiohttp import web

Answer = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]
"""Answers a call, whose result is given."""

TOOL = {
    "name": "say",
    "description": "Says it again.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}


@dataclass
class HttpServer:
    """What a server expects, how it answers the next calls, and what it has been asked."""

    url: str = ""
    token: str = ""
    """If this is set, only requests with this bearer token are accepted."""
    sessions: set[str] = field(default_factory=set)
    answers: list[Answer] = field(default_factory=list)
    """How the next calls are answered; then, they are answered at once."""
    listings: list[Answer] = field(default_factory=list)
    """How the next listings of its tools are answered."""
    calls: list[str] = field(default_factory=list)
    """The texts of all calls."""
    started: int = 0
    """How many sessions it has begun."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            return web.Response(status=401, headers={"WWW-Authenticate": "Bearer"})
        session = request.headers.get("Mcp-Session-Id", "")
        if request.method == "DELETE":
            self.sessions.discard(session)
            return web.Response()
        if request.method != "POST":
            return web.Response(status=405)
        message = await request.json()
        if message["method"] == "initialize":
            return self._begin_session(message)
        if session not in self.sessions:
            return make_error_response(404 if session else 400, "Session not found")
        if "id" not in message:
            return web.Response(status=202)
        return await self._answer(request, message)

    def _begin_session(self, message: dict[str, Any]) -> web.Response:
        self.started += 1
        session = f"session-{self.started}"
        self.sessions.add(session)
        about = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "played", "version": "1"},
        }
        response = web.json_response(make_reply(message, about))
        response.headers["Mcp-Session-Id"] = session
        return response

    async def _answer(self, request: web.Request, message: dict[str, Any]) -> web.StreamResponse:
        if message["method"] == "tools/list":
            answer = self.listings.pop(0) if self.listings else answer_at_once
            return await answer(request, make_reply(message, {"tools": [TOOL]}))
        text = message["params"]["arguments"]["text"]
        self.calls.append(text)
        answer = self.answers.pop(0) if self.answers else answer_at_once
        return await answer(request, make_reply(message, {"content": [{"type": "text", "text": text}]}))


def make_reply(message: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": message["id"], "result": result}


def make_error_response(status: int, text: str) -> web.Response:
    """Return an error as the published servers send it."""
    return web.json_response({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": text}}, status=status)


async def answer_at_once(request: web.Request, reply: dict[str, Any]) -> web.StreamResponse:
    return web.json_response(reply)


def answer_with_status(status: int) -> Answer:
    async def answer(request: web.Request, reply: dict[str, Any]) -> web.StreamResponse:
        return web.Response(status=status, text="no")

    return answer


async def drop_connection(request: web.Request, reply: dict[str, Any]) -> web.StreamResponse:
    """Close the connection instead of answering."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


def drop_after(data: bytes) -> Answer:
    """Begin a stream of events with this data, and close the connection."""

    async def answer(request: web.Request, reply: dict[str, Any]) -> web.StreamResponse:
        response = await open_event_stream(request)
        await response.write(data)
        return await drop_connection(request, reply)

    return answer


async def answer_in_pieces(request: web.Request, reply: dict[str, Any]) -> web.StreamResponse:
    """Send a comment, a notification and the reply as events, byte by byte, with all kinds of line ends."""
    response = await open_event_stream(request)
    note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "é"}}
    body = b": hello\r\n\r\n" + make_event(note, end=b"\r\n") + make_event(reply, end=b"\n", lines=2)
    for at in range(len(body)):
        await response.write(body[at : at + 1])
        await anyio.lowlevel.checkpoint()
    await response.write_eof()
    return response


def make_event(message: dict[str, Any], *, end: bytes, lines: int = 1) -> bytes:
    """Return a message as an event, whose data is split into several lines."""
    text = msgspec.json.format(msgspec.json.encode(message), indent=0 if lines == 1 else 1)
    data = end.join(b"data: " + line for line in text.splitlines())
    return b"event: message" + end + data + end + end


async def open_event_stream(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    return response


@asynccontextmanager
async def run_http_server(port: int = 0, **options: Any) -> AsyncIterator[HttpServer]:
    """Run a server until the block ends. Another server can then begin on the same port."""
    server = HttpServer(**options)
    application = web.Application()
    application.router.add_route("*", "/mcp", server.handle)
    runner = web.AppRunner(application, shutdown_timeout=0.01)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port, reuse_address=True)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    try:
        yield server
    finally:
        await runner.cleanup()
