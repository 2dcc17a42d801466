"""Serve HTTP/1.1 requests that arrive on a stream from the sandbox.

The parser is strict: a request that could be interpreted in two ways is refused. Bodies are read in chunks.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import h11
import msgspec
from anyio import BrokenResourceError, ClosedResourceError, EndOfStream
from anyio.abc import ByteStream

LARGEST_HEAD = 64 * 1024
HOP_BY_HOP = frozenset(
    (
        *(b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"proxy-authorization"),
        *(b"te", b"trailer", b"transfer-encoding", b"upgrade"),
    )
)
"""Hop-by-hop headers, which apply to a single connection and are not passed on."""

Headers = Sequence[tuple[bytes, bytes]]


class RequestRefused(Exception):
    """A request that is refused with an HTTP status. The message says why and is sent to the program."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """A request, without its body. `target` is unchanged: a path, a URL or, for CONNECT, a host and port."""

    method: str
    target: str
    headers: Headers
    has_body: bool

    def find_header(self, name: bytes) -> str:
        """Return the value of a header, or an empty string. `name` is in lower case."""
        return next((value.decode("latin-1") for key, value in self.headers if key == name), "")


class HttpExchange:
    """One request on a connection, and the response to it."""

    def __init__(self, stream: ByteStream, connection: h11.Connection, request: HttpRequest) -> None:
        self.request = request
        self._stream = stream
        self._connection = connection
        self.has_answered = False
        """Whether the response has begun."""

    async def read_body(self) -> AsyncIterator[bytes]:
        """Yield the request's body in chunks."""
        while True:
            event = await _receive_event(self._stream, self._connection)
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            else:
                return

    async def read_whole_body(self, limit: int) -> bytes:
        """Return the request's body. Raise RequestRefused if it is larger than `limit` bytes."""
        body = bytearray()
        async for piece in self.read_body():
            body += piece
            if len(body) > limit:
                raise RequestRefused(413, f"the body of the request is larger than {limit} bytes")
        return bytes(body)

    async def start_answer(self, status: int, headers: Headers) -> None:
        """Send the status and the headers of the response. Without a content length, the body is sent in chunks."""
        self.has_answered = True
        kept = [(name, value) for name, value in headers if name.lower() not in HOP_BY_HOP]
        await self._send(h11.Response(status_code=status, headers=kept))

    async def send_piece(self, data: bytes) -> None:
        await self._send(h11.Data(data=data))

    async def end_answer(self) -> None:
        await self._send(h11.EndOfMessage())

    async def answer_error(self, status: int, message: str) -> None:
        """Send an error response in the format that clients of model APIs expect.

        This is possible only if no response to the request has started.
        """
        body = msgspec.json.encode({"error": {"message": message, "type": "podium_relay"}})
        length = str(len(body)).encode()
        await self.start_answer(status, ((b"content-type", b"application/json"), (b"content-length", length)))
        if self.request.method != "HEAD":
            await self.send_piece(body)
        await self.end_answer()

    async def accept_tunnel(self) -> bytes:
        """Accept a CONNECT request, and return the bytes that have already arrived for the tunnel."""
        await self._send(h11.Response(status_code=200, headers=[]))
        return bytes(self._connection.trailing_data[0])

    async def _send(self, event: h11.Event) -> None:
        if data := self._connection.send(event):
            await self._stream.send(data)


async def serve_requests(stream: ByteStream, answer: Callable[[HttpExchange], Awaitable[None]]) -> None:
    """Answer the requests on a connection one by one, until it is closed or can no longer be used."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=LARGEST_HEAD)
    while True:
        try:
            event = await _receive_event(stream, connection)
        except RequestRefused as error:
            await _refuse_connection(stream, connection, error)
            return
        if not isinstance(event, h11.Request):
            return
        exchange = HttpExchange(stream, connection, _make_request(event))
        try:
            await answer(exchange)
        except RequestRefused as error:
            if exchange.has_answered:
                return
            await exchange.answer_error(error.status, str(error))
        except h11.LocalProtocolError:
            return  # the response is not valid HTTP, so the connection cannot be used any more
        if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
            return
        connection.start_next_cycle()


async def _receive_event(stream: ByteStream, connection: h11.Connection) -> h11.Event | type[h11.PAUSED]:
    """Return the next event. Raise RequestRefused if the program sent something that is not valid HTTP."""
    try:
        while (event := connection.next_event()) is h11.NEED_DATA:
            if connection.they_are_waiting_for_100_continue:
                await stream.send(connection.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
            try:
                connection.receive_data(await stream.receive())
            except EndOfStream:
                connection.receive_data(b"")
    except h11.RemoteProtocolError as error:
        raise RequestRefused(error.error_status_hint or 400, f"invalid HTTP: {error}") from None
    return event  # type: ignore[return-value]  # NEED_DATA is excluded above


async def _refuse_connection(stream: ByteStream, connection: h11.Connection, error: RequestRefused) -> None:
    with suppress(h11.LocalProtocolError, BrokenResourceError, ClosedResourceError):
        headers = [("content-length", "0"), ("connection", "close")]
        await stream.send(connection.send(h11.Response(status_code=error.status, headers=headers)) or b"")


def _make_request(event: h11.Request) -> HttpRequest:
    headers = [(bytes(name), bytes(value)) for name, value in event.headers]
    framed = (b"content-length", b"transfer-encoding")
    return HttpRequest(
        method=event.method.decode("ascii"),
        target=event.target.decode("ascii"),
        headers=headers,
        has_body=any(name in framed and value != b"0" for name, value in headers),
    )
