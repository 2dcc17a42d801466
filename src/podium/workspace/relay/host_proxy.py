"""An HTTP proxy that lets commands in the sandbox reach the hosts that were granted to them, and no others.

It accepts CONNECT, and plain HTTP. In a tunnel, the TLS handshake must name the granted host. A tunnel to a port that
is neither 80 nor 443, which a grant must name, can also carry another protocol. Names are resolved outside the sandbox,
and Podium connects only to the address that was checked. A host that was refused is reported once.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial

from aiohttp import ClientSession
from aiohttp.abc import AbstractResolver, ResolveResult
from anyio import (
    BrokenResourceError,
    ClosedResourceError,
    EndOfStream,
    connect_tcp,
    create_task_group,
    fail_after,
    getaddrinfo,
)
from anyio.abc import ByteReceiveStream, ByteStream, SocketStream
from yarl import URL

from ...system.public_address import is_public_address
from ...values.errors import find_first_error
from ...values.plain_text import escape_unprintable, truncate_text
from .host_grant import DEFAULT_PORTS, HostGrant, find_grant, split_host
from .http_exchange import HttpExchange, RequestRefused, serve_requests
from .http_forwarding import CONNECT_SECONDS, forward_request, open_client, select_headers
from .stream_channel import ServeStream
from .tls_hello import UNRECOGNIZED_NAME, HelloFilter, HelloRefused

MOST_REPORTS = 20
"""How many refused hosts are reported for one sandboxed program."""
LONGEST_TARGET = 200
HELLO_SECONDS = 30.0
"""How long a client has to send the first message of its TLS handshake."""


@asynccontextmanager
async def open_host_proxy(
    grants: Sequence[HostGrant], *, report: Callable[[str], object] = lambda text: None
) -> AsyncIterator[ServeStream]:
    """Yield the proxy for these grants. `report` is called with a sentence for each host that is refused."""
    proxy = HostProxy(grants, report=report)
    async with open_client(_GrantedResolver(proxy.resolve_host)) as client:
        yield partial(proxy.serve_stream, client=client)


class HostProxy:
    """The proxy for one sandbox."""

    def __init__(self, grants: Sequence[HostGrant], *, report: Callable[[str], object]) -> None:
        self._grants = grants
        self._report = report
        self._reported: set[str] = set()

    async def serve_stream(self, stream: ByteStream, *, client: ClientSession) -> None:
        """Serve one connection: plain HTTP requests, or one tunnel."""
        await serve_requests(stream, partial(self._answer_request, stream=stream, client=client))

    async def _answer_request(self, exchange: HttpExchange, *, stream: ByteStream, client: ClientSession) -> None:
        if exchange.request.method == "CONNECT":
            await self._open_tunnel(exchange, stream)
        else:
            await self._forward_plain(exchange, client)

    async def _open_tunnel(self, exchange: HttpExchange, stream: ByteStream) -> None:
        target = exchange.request.target
        found = split_host(target)
        if found is None or found[1] is None:
            raise self._refuse(target, "it does not have the form HOST:PORT")
        host, port = found[0], found[1]
        server = await self._connect(host, port)
        async with server:
            early = await exchange.accept_tunnel()
            hello = HelloFilter(host, must_be_tls=port in DEFAULT_PORTS, is_number=":" in host or host[-1].isdigit())
            try:
                await _begin_tunnel(stream, server, hello, early)
                async with create_task_group() as group:
                    group.start_soon(_copy_bytes, server, stream)
                    await _copy_bytes(stream, server, hello)
            except HelloRefused as refused:
                await self._end_refused_tunnel(stream, target, str(refused))
            except ExceptionGroup as errors:
                if (refusals := errors.subgroup(HelloRefused)) is None:
                    raise
                await self._end_refused_tunnel(stream, target, str(find_first_error(refusals)))

    async def _end_refused_tunnel(self, stream: ByteStream, target: str, why: str) -> None:
        """Report the refusal, and tell the client in the words of TLS."""
        self._refuse(target, why)
        with suppress(BrokenResourceError, ClosedResourceError, OSError):
            await stream.send(UNRECOGNIZED_NAME)

    async def _connect(self, host: str, port: int) -> SocketStream:
        addresses = await self.resolve_host(host, port)
        try:
            with fail_after(CONNECT_SECONDS):
                return await _connect_first(addresses, port)
        except (OSError, TimeoutError) as error:
            raise RequestRefused(502, f"{host}:{port} cannot be reached") from error

    async def _forward_plain(self, exchange: HttpExchange, client: ClientSession) -> None:
        target = exchange.request.target
        scheme, mark, rest = target.partition("://")
        authority, slash, path = rest.partition("/")
        found = split_host(authority) if mark and scheme.lower() == "http" and "?" not in authority else None
        if found is None or not target.isprintable():
            raise self._refuse(target, "it is not an http:// URL with a host")
        host, port = found[0], found[1] or 80
        self._require_grant(host, port)
        shown = f"[{host}]" if ":" in host else host
        # Build the URL from the host that was checked, so that the connection can go to no other host.
        url = URL(f"http://{shown}:{port}{slash or '/'}{path.partition('#')[0]}", encoded=True)
        if ":" in host or host[-1].isdigit():
            await self.resolve_host(host, port)
        await forward_request(exchange, client, url, select_headers(exchange.request.headers))

    async def resolve_host(self, host: str, port: int) -> list[str]:
        """Return the addresses of a granted host. Raise RequestRefused if the host or an address is not granted."""
        grant = self._require_grant(host, port)
        try:
            found = await getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise RequestRefused(502, f"{host} cannot be resolved") from error
        addresses = list(dict.fromkeys(str(address[4][0]) for address in found))
        private = [address for address in addresses if not is_public_address(address)]
        if private and not grant.is_private:
            raise self._refuse(f"{host}:{port}", f"its address {private[0]} is not public")
        return addresses

    def _require_grant(self, host: str, port: int) -> HostGrant:
        grant = find_grant(self._grants, host, port)
        if grant is None:
            raise self._refuse(f"{host}:{port}", "it was not granted")
        return grant

    def _refuse(self, target: str, why: str) -> RequestRefused:
        """Return the error for a refused request, and report the refusal if it is new."""
        shown = escape_unprintable(truncate_text(target, LONGEST_TARGET))
        if shown not in self._reported and len(self._reported) < MOST_REPORTS:
            self._reported.add(shown)
            self._report(f"A program in the sandbox was refused a connection to {shown}: {why}.")
        return RequestRefused(403, f"{shown} was refused: {why}")


async def _connect_first(addresses: Sequence[str], port: int) -> SocketStream:
    for address in addresses[:-1]:
        with suppress(OSError):
            return await connect_tcp(address, port)
    return await connect_tcp(addresses[-1], port)


async def _begin_tunnel(source: ByteReceiveStream, target: ByteStream, hello: HelloFilter, early: bytes) -> None:
    """Pass on the first message of a client that must name its server."""
    with suppress(EndOfStream, BrokenResourceError, ClosedResourceError, OSError):
        try:
            with fail_after(HELLO_SECONDS):
                if passed := hello.take(early):
                    await target.send(passed)
                while not hello.has_passed:
                    if passed := hello.take(await source.receive()):
                        await target.send(passed)
        except TimeoutError:
            raise HelloRefused("no TLS handshake arrived in time") from None


async def _copy_bytes(source: ByteReceiveStream, target: ByteStream, hello: HelloFilter | None = None) -> None:
    """Copy bytes until the source ends, then send an end-of-file to the target. `hello` checks what is copied."""
    with suppress(BrokenResourceError, ClosedResourceError, OSError):
        with suppress(EndOfStream):
            while True:
                data = await source.receive()
                if passed := data if hello is None else hello.take(data):
                    await target.send(passed)
        await target.send_eof()


class _GrantedResolver(AbstractResolver):
    """Resolves host names for the HTTP client, and returns only checked addresses."""

    def __init__(self, resolve_host: Callable[[str, int], Awaitable[list[str]]]) -> None:
        self._resolve_host = resolve_host

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in await self._resolve_host(host, port)
        ]

    async def close(self) -> None:
        pass
