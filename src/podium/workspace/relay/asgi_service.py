"""Serve an ASGI application to a program in a sandbox."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any
from urllib.parse import unquote

from anyio import BrokenResourceError, ClosedResourceError, EndOfStream, Semaphore, sleep_forever
from anyio.abc import Listener, SocketStream

from .http_exchange import HttpExchange, RequestRefused, serve_requests
from .stream_channel import ServeStream

LARGEST_BODY = 4 * 1024 * 1024
BODIES_AT_ONCE = 8
"""The maximum number of bodies that are read at the same time, so that a program cannot exhaust Podium's memory."""
Message = MutableMapping[str, Any]
AsgiApplication = Callable[
    [MutableMapping[str, Any], Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]],
    Awaitable[None],
]


def make_asgi_service(application: AsgiApplication) -> ServeStream:
    """Return the service that passes the sandbox's requests to an application."""
    reading = Semaphore(BODIES_AT_ONCE)
    return partial(serve_requests, answer=partial(_answer_request, application=application, reading=reading))


async def serve_connections(listener: Listener[SocketStream], application: AsgiApplication) -> None:
    """Accept connections on a listener, and pass their requests to an application, until cancelled."""
    answer = make_asgi_service(application)

    async def serve_connection(stream: SocketStream) -> None:
        async with stream:
            with suppress(EndOfStream, BrokenResourceError, ClosedResourceError):
                await answer(stream)

    await listener.serve(serve_connection)


async def _answer_request(exchange: HttpExchange, *, application: AsgiApplication, reading: Semaphore) -> None:
    if not exchange.request.target.startswith("/"):
        raise RequestRefused(400, "the request target must be a path")
    async with reading if exchange.request.has_body else nullcontext():
        body = await exchange.read_whole_body(LARGEST_BODY)
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if not pending:
            # The stream's task is cancelled when the program closes its connection, so there is nothing to report.
            await sleep_forever()
        return pending.pop()

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            await exchange.start_answer(message["status"], [*message.get("headers", ())])
        elif message["type"] == "http.response.body":
            if body := message.get("body", b""):
                await exchange.send_piece(body)
            if not message.get("more_body", False):
                await exchange.end_answer()

    await application(_build_scope(exchange), receive, send)


def _build_scope(exchange: HttpExchange) -> dict[str, Any]:
    request = exchange.request
    path, _, query = request.target.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode("ascii"),
        "root_path": "",
        "query_string": query.encode("ascii"),
        "headers": list(request.headers),
        "client": ("127.0.0.1", 0),
        "server": ("127.0.0.1", 0),
        "state": {},
    }
