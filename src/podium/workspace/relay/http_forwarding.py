"""Forward an HTTP request from the sandbox to a server, and return the response in chunks."""

from __future__ import annotations

from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector
from aiohttp.abc import AbstractResolver
from multidict import CIMultiDict
from yarl import URL

from .http_exchange import HOP_BY_HOP, Headers, HttpExchange, RequestRefused

CONNECT_SECONDS = 30
CHUNK = 64 * 1024


def open_client(resolver: AbstractResolver | None = None) -> ClientSession:
    """Return an HTTP client that passes on requests and responses unchanged. The caller must close it."""
    return ClientSession(
        connector=TCPConnector(resolver=resolver, limit=0),
        cookie_jar=DummyCookieJar(),
        auto_decompress=False,
        timeout=ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
    )


async def forward_request(
    exchange: HttpExchange, client: ClientSession, url: URL, headers: Headers, *, proxy: str | None = None
) -> None:
    """Forward a program's request to `url` with these headers, and pass the server's response to the program."""
    request = exchange.request
    sent = CIMultiDict((name.decode("ascii"), value.decode("latin-1")) for name, value in headers)
    try:
        async with client.request(
            request.method,
            url,
            headers=sent,
            data=exchange.read_body() if request.has_body else None,
            allow_redirects=False,
            proxy=proxy,
        ) as answer:
            await exchange.start_answer(answer.status, answer.raw_headers)
            async for piece in answer.content.iter_chunked(CHUNK):
                await exchange.send_piece(piece)
            await exchange.end_answer()
            if not request.has_body:
                async for _ in exchange.read_body():
                    pass
    except (ClientError, TimeoutError, OSError) as error:
        if exchange.has_answered:
            raise RequestRefused(502, "the server stopped in the middle of its response") from error
        why = str(error) or type(error).__name__
        raise RequestRefused(502, f"{url.host} cannot be reached: {why}") from error


def select_headers(headers: Headers, *, without: frozenset[bytes] = frozenset()) -> list[tuple[bytes, bytes]]:
    """Return the headers to pass on.

    `Host`, `Expect`, hop-by-hop headers, the headers that `Connection` lists, and those in `without` are left out.
    """
    named = {
        name.strip().lower() for key, value in headers if key == b"connection" for name in value.split(b",") if name
    }
    left_out = HOP_BY_HOP | without | named | {b"host", b"expect"}
    return [(name, value) for name, value in headers if name not in left_out]
