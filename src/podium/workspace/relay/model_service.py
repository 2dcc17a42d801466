"""Connect an agent in the sandbox to the one model server that it may use.

The agent calls an address on its own loopback. The relay sends the call to the server, and adds the key, which is never
in the sandbox.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from urllib.parse import unquote

from aiohttp import ClientSession
from yarl import URL

from .http_exchange import HttpExchange, RequestRefused, serve_requests
from .http_forwarding import forward_request, open_client, select_headers
from .sandbox_relay import ModelEndpoint
from .stream_channel import ServeStream

CREDENTIALS = frozenset((b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key", b"cookie"))
"""Headers that contain credentials. Before the relay adds one of them, it removes all of them from the request.

The credentials in an agent's request are only placeholders.
"""
METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))


@asynccontextmanager
async def open_model_service(endpoint: ModelEndpoint) -> AsyncIterator[ServeStream]:
    """Yield the service that sends an agent's calls to the model server."""
    base = URL(endpoint.url, encoded=True)
    async with open_client() as client:
        answer = partial(_answer_call, endpoint=endpoint, base=base, client=client)
        yield partial(serve_requests, answer=answer)


async def _answer_call(exchange: HttpExchange, *, endpoint: ModelEndpoint, base: URL, client: ClientSession) -> None:
    request = exchange.request
    if request.method not in METHODS:
        raise RequestRefused(405, f"{request.method} is not allowed here")
    url = _extend_url(base, request.target)
    added = [(name.lower().encode("ascii"), value.encode("latin-1")) for name, value in endpoint.headers.items()]
    names = frozenset(name for name, _ in added)
    dropped = names | CREDENTIALS if names & CREDENTIALS else names
    await forward_request(
        exchange, client, url, [*select_headers(request.headers, without=dropped), *added], proxy=endpoint.proxy
    )


def _extend_url(base: URL, target: str) -> URL:
    """Return `base` extended by a path and query. Raise RequestRefused if the path could lead outside `base`."""
    path, mark, query = target.partition("?")
    plain = path
    while (decoded := unquote(plain)) != plain:
        plain = decoded
    is_below = path.startswith("/") and not {"..", "."} & set(plain.replace("\\", "/").split("/"))
    if not is_below or not target.isprintable() or "#" in target:
        raise RequestRefused(403, "only paths below the model's address can be used")
    return URL(f"{str(base).rstrip('/')}{path}{mark}{query}", encoded=True)
