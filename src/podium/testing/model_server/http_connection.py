"""Connections: requests come in, answers go out when they are due.

Written on bare transports without tasks, because a thousand agents that are being measured must
not wait for the thing that measures them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import cast

import anyio
import msgspec

LONGEST_HEAD = 2**16
LARGEST_BODY = 2**26

encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A request up to its body."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: int

    @classmethod
    def parse(cls, head: bytes) -> Head:
        """Raises ValueError for what is no request, or one whose end cannot be told."""
        first, *lines = head.decode().split("\r\n")
        method, target, version = first.split(" ", 2)
        if version != "HTTP/1.1":
            raise ValueError(f"{version} is not spoken here")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if "transfer-encoding" in headers:
            raise ValueError("a body without Content-Length is not understood")
        body = int(headers.get("content-length", 0))
        if not 0 <= body <= LARGEST_BODY:
            raise ValueError(f"a body of {body} bytes is not taken")
        return cls(method=method, path=target.partition("?")[0], headers=headers, body=body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Bytes to send: the first part after `delay` seconds, each further one `pace` seconds later.

    Where it `breaks`, the connection is cut after the last; without any part nothing ever comes.
    """

    parts: Sequence[bytes]
    delay: float = 0.0
    pace: float = 0.0
    breaks: bool = False


STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
STREAM_END = b"0\r\n\r\n"


def whole(status: int, document: object, *, retry_after: float | None = None) -> Answer:
    """A document as an answer; bytes are one already."""
    body = document if isinstance(document, bytes) else encode(document)
    more = "" if retry_after is None else f"Retry-After: {retry_after:g}\r\n"
    head = f"HTTP/1.1 {status} {_reason(status)}\r\nContent-Type: application/json\r\n{more}Content-Length: {len(body)}"
    return Answer(parts=[f"{head}\r\n\r\n".encode() + body])


def chunk(data: bytes) -> bytes:
    """A part of a stream."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def _reason(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"


class Traffic:
    """The connections that are open, the calls that are being answered, and those who wait for a change."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.most_in_flight = 0
        self._connections: set[Connection] = set()
        self._waiting: dict[anyio.Event, Callable[[], bool]] = {}

    def joined(self, connection: Connection) -> None:
        self._connections.add(connection)

    def left(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self.changed()

    def began(self) -> None:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)

    def ended(self) -> None:
        self.in_flight -= 1
        self.changed()

    def changed(self) -> None:
        for event, holds in self._waiting.items():
            if holds():
                event.set()

    async def wait(self, holds: Callable[[], bool]) -> None:
        """Return when this holds; whatever it looks at is followed by `changed`."""
        while not holds():
            event = anyio.Event()
            self._waiting[event] = holds
            try:
                await event.wait()
            finally:
                del self._waiting[event]

    async def hang_up(self) -> None:
        """Cut every connection."""
        for connection in list(self._connections):
            connection.abort()
        await self.wait(lambda: not self._connections)


class Connection(asyncio.Protocol):
    """One client: its requests are answered one after the other. Replies are small, so nothing holds them back."""

    def __init__(self, traffic: Traffic, answer: Callable[[Head, bytes], Answer]) -> None:
        self._traffic = traffic
        self._answered = answer
        self._loop = asyncio.get_running_loop()
        self._received = bytearray()
        self._head: Head | None = None
        self._answer: Answer | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do the same and are no subclass.
        self._transport = cast("asyncio.Transport", transport)
        self._traffic.joined(self)

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        self._traffic.left(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._answer is not None:
            self._answer = None
            self._traffic.ended()

    def abort(self) -> None:
        self._transport.abort()

    def _next(self) -> None:
        """Answer what has arrived, as far as it can be answered now."""
        while self._answer is None and not self._transport.is_closing():
            try:
                request = self._request()
            except ValueError as error:
                self._transport.write(whole(400, {"error": {"message": str(error)}}).parts[0])
                self._transport.close()
                return
            if request is None:
                return
            self._traffic.began()
            self._answer = self._answered(*request)
            if self._answer.parts:
                self._send(self._answer, 0, self._loop.time() + self._answer.delay)

    def _request(self) -> tuple[Head, bytes] | None:
        """The next request, once it has arrived as a whole."""
        if self._head is None:
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                if len(self._received) > LONGEST_HEAD:
                    raise ValueError("the head of the request is too long")
                return None
            self._head = Head.parse(bytes(self._received[:end]))
            del self._received[: end + 4]
        head = self._head
        if len(self._received) < head.body:
            return None
        body = bytes(self._received[: head.body])
        del self._received[: head.body]
        self._head = None
        return head, body

    def _send(self, answer: Answer, place: int, moment: float) -> None:
        """Send the parts from `place` on, the first of them at `moment`. A timer goes on with what is not due."""
        while place < len(answer.parts):
            if moment > self._loop.time():
                self._timer = self._loop.call_at(moment, self._go_on, answer, place, moment)
                return
            self._transport.write(answer.parts[place])
            place += 1
            moment += answer.pace
        if answer.breaks:
            self._transport.close()
        else:
            self._answer = None
            self._traffic.ended()

    def _go_on(self, answer: Answer, place: int, moment: float) -> None:
        self._send(answer, place, moment)
        self._next()
