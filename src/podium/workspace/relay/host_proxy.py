"""An HTTP proxy that lets commands in the sandbox reach the hosts that were granted to them, and no others.

It accepts CONNECT, and plain HTTP. In a tunnel, the TLS handshake must name the granted host. A tunnel to a port that
is neither 80 nor 443, which a grant must name, can also carry another protocol. Names are resolved outside the sandbox,
and Podium connects only to the address that was checked. A host that was refused is reported once.

Many hosts can share one address. The server name in the first message of the TLS handshake (the ClientHello) selects
one of them, and is not encrypted, so it is checked too.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
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

HANDSHAKE, CHANGE_CIPHER_SPEC, CLIENT_HELLO = 22, 20, 1
SERVER_NAME = 0
LARGEST_RECORD = 16 * 1024
LARGEST_HELLO = 64 * 1024
UNRECOGNIZED_NAME = bytes((21, 3, 1, 0, 2, 2, 112))
"""The TLS alert that tells a client that the server name was refused."""


class HelloRefused(Exception):
    """The client did not begin as it must. The message continues a sentence that names the host."""


@dataclass(frozen=True, slots=True)
class ClientHello:
    """The server name that a client asks for, or None, and how many bytes its message took."""

    name: str | None
    size: int


class HelloFilter:
    """Passes on what a client sends after its handshake was found to name the host.

    If `must_be_tls` is false, a client that does not begin with a handshake can send anything. `is_number` says that
    the host is an IP address, which has no server name.
    """

    def __init__(self, host: str, *, must_be_tls: bool, is_number: bool) -> None:
        self._host = host
        self._must_be_tls = must_be_tls
        self._is_number = is_number
        self._held = b""
        self._is_open = False
        self.has_passed = not must_be_tls
        """Whether the client can be sent an answer."""

    def take(self, data: bytes) -> bytes:
        """Return the bytes that can be passed on now. Raise HelloRefused if the client asks for another host."""
        if self._is_open:
            return data
        self._held += data
        passed, is_second = b"", self.has_passed and self._must_be_tls
        while self._held and not self._is_open:
            size = self._measure_next(is_second=is_second)
            if size == 0:
                break
            passed, self._held = passed + self._held[:size], self._held[size:]
            self.has_passed = is_second = self._must_be_tls = True
        return passed

    def _measure_next(self, *, is_second: bool) -> int:
        """Return how many bytes can be passed on, or 0 if more must arrive before that is known."""
        held = self._held
        if is_second and held[0] == CHANGE_CIPHER_SPEC:
            size = 5 + int.from_bytes(held[3:5], "big")
            return size if len(held) >= max(5, size) else 0
        if held[0] != HANDSHAKE:
            if not is_second and self._must_be_tls:
                raise HelloRefused("what was sent is not TLS, which this port needs")
            return self._open()
        if is_second:
            # A server can ask for a second ClientHello. Anything else is the rest of the handshake.
            if len(held) < 11:
                return 0
            if held[5] != CLIENT_HELLO or held[9] != 3:
                return self._open()
        try:
            hello = parse_client_hello(held)
        except ValueError:
            raise HelloRefused("its TLS handshake cannot be read") from None
        if hello is None:
            return 0
        self._require_name(hello.name)
        return hello.size

    def _open(self) -> int:
        self._is_open = True
        return len(self._held)

    def _require_name(self, name: str | None) -> None:
        if name is None and self._is_number:
            return
        if name is None:
            raise HelloRefused("its TLS handshake names no server")
        if name.lower().removesuffix(".") != self._host:
            raise HelloRefused(f"its TLS handshake names another server, {name[:100]!a}")


class _Reader:
    """Reads fields from the start of bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def take(self, size: int) -> bytes:
        if len(self.data) < size:
            raise ValueError("a field is cut off")
        found, self.data = self.data[:size], self.data[size:]
        return found

    def take_vector(self, width: int) -> bytes:
        """Return a field with its length before it."""
        return self.take(int.from_bytes(self.take(width), "big"))


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


def parse_client_hello(data: bytes) -> ClientHello | None:
    """Return the ClientHello at the start of a stream, or None if it is incomplete.

    The message can be spread over several records. Raise ValueError if it is no ClientHello, is too long, or could be
    read in two ways.
    """
    message, at = b"", 0
    while len(message) < 4 or len(message) < 4 + int.from_bytes(message[1:4], "big"):
        head = data[at : at + 5]
        size = int.from_bytes(head[3:5], "big")
        if (head[:1] and head[0] != HANDSHAKE) or (head[1:2] and head[1] != 3) or size > LARGEST_RECORD:
            raise ValueError("not a record of a TLS handshake")
        if len(head) == 5 and size == 0:
            raise ValueError("an empty record")
        if (message and message[0] != CLIENT_HELLO) or int.from_bytes(message[1:4], "big") > LARGEST_HELLO:
            raise ValueError("not a ClientHello")
        if len(head) < 5 or len(data) < at + 5 + size:
            if len(data) > LARGEST_HELLO + LARGEST_RECORD:
                raise ValueError("too long")
            return None
        message, at = message + data[at + 5 : at + 5 + size], at + 5 + size
        if len(data) > 4 * LARGEST_HELLO:
            raise ValueError("too long")
    if message[0] != CLIENT_HELLO or len(message) != 4 + int.from_bytes(message[1:4], "big"):
        raise ValueError("not a ClientHello alone")
    return ClientHello(_find_server_name(message[4:]), at)


def _find_server_name(body: bytes) -> str | None:
    hello = _Reader(body)
    hello.take(2 + 32)
    hello.take_vector(1)
    hello.take_vector(2)
    hello.take_vector(1)
    if not hello.data:
        return None
    extensions = _Reader(hello.take_vector(2))
    if hello.data:
        raise ValueError("there is something after the extensions")
    names: list[bytes] = []
    while extensions.data:
        kind, content = int.from_bytes(extensions.take(2), "big"), _Reader(extensions.take_vector(2))
        if kind == SERVER_NAME:
            listed = _Reader(content.take_vector(2))
            if content.data or listed.take(1) != b"\0":
                raise ValueError("not a host name")
            names.append(listed.take_vector(2))
            if listed.data:
                raise ValueError("several server names")
    if len(names) > 1:
        raise ValueError("several server names")
    return names[0].decode("ascii") if names else None
