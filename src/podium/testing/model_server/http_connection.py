"""Handle the model server's HTTP connections: read requests, and send each response when it is due.

Connections use transports without tasks, so that a benchmark with a thousand agents measures the agents and not
this server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from types import MappingProxyType
from typing import cast

import anyio
import msgspec

LONGEST_HEAD = 2**16
LARGEST_BODY = 2**26

encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHead:
    """The head of a request: everything before its body."""

    method: str
    path: str
    headers: Mapping[str, str]
    body_size: int

    @classmethod
    def parse(cls, head: bytes) -> RequestHead:
        """Parse a request head. Raise ValueError if it is not a request that this server supports."""
        first, *lines = head.decode().split("\r\n")
        method, target, version = first.split(" ", 2)
        if version != "HTTP/1.1":
            raise ValueError(f"{version} is not supported; use HTTP/1.1")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if "transfer-encoding" in headers:
            raise ValueError("Transfer-Encoding is not supported; send Content-Length")
        body = int(headers.get("content-length", 0))
        if not 0 <= body <= LARGEST_BODY:
            raise ValueError(f"a body of {body} bytes is not accepted; the limit is {LARGEST_BODY}")
        return cls(method=method, path=target.partition("?")[0], headers=headers, body_size=body)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedResponse:
    """Bytes to send: the first part after `delay` seconds, each further part `pace` seconds later.

    If `breaks` is true, the connection is closed after the last part. Without parts, nothing is ever sent.
    """

    parts: Sequence[bytes]
    delay: float = 0.0
    pace: float = 0.0
    breaks: bool = False


STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
STREAM_END = b"0\r\n\r\n"


def build_json_response(
    status: int, document: object, *, headers: Mapping[str, str] = MappingProxyType({})
) -> TimedResponse:
    """Return a JSON response. `document` is encoded as JSON, unless it is bytes, which are sent unchanged."""
    body = document if isinstance(document, bytes) else encode(document)
    more = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = (
        f"HTTP/1.1 {status} {_reason_phrase(status)}\r\nContent-Type: "
        f"application/json\r\n{more}Content-Length: {len(body)}"
    )
    return TimedResponse(parts=[f"{head}\r\n\r\n".encode() + body])


def encode_chunk(data: bytes) -> bytes:
    """Encode a chunk of a chunked response."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def _reason_phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"


class ConnectionTracker:
    """Tracks the open connections and the calls in flight, and wakes tasks that wait for a change in either."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.most_in_flight = 0
        self._connections: set[Connection] = set()
        self._waiting: dict[anyio.Event, Callable[[], bool]] = {}

    def add_connection(self, connection: Connection) -> None:
        self._connections.add(connection)

    def remove_connection(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self.notify_waiters()

    def start_call(self) -> None:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)

    def finish_call(self) -> None:
        self.in_flight -= 1
        self.notify_waiters()

    def notify_waiters(self) -> None:
        for event, holds in self._waiting.items():
            if holds():
                event.set()

    async def wait_until(self, holds: Callable[[], bool]) -> None:
        """Wait until `holds()` returns true. Each call of `notify_waiters` calls `holds` again."""
        while not holds():
            event = anyio.Event()
            self._waiting[event] = holds
            try:
                await event.wait()
            finally:
                del self._waiting[event]

    async def abort_connections(self) -> None:
        """Abort every connection and wait until all are closed."""
        for connection in list(self._connections):
            connection.abort()
        await self.wait_until(lambda: not self._connections)


class Connection(asyncio.Protocol):
    """One client's connection. Requests are answered in order; there is no flow control, because replies are small."""

    def __init__(self, tracker: ConnectionTracker, respond: Callable[[RequestHead, bytes], TimedResponse]) -> None:
        self._tracker = tracker
        self._respond = respond
        self._loop = asyncio.get_running_loop()
        self._received = bytearray()
        self._head: RequestHead | None = None
        self._response: TimedResponse | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the same methods but are not a subclass.
        self._transport = cast("asyncio.Transport", transport)
        self._tracker.add_connection(self)

    def data_received(self, data: bytes) -> None:
        self._received += data
        self._answer_requests()

    def connection_lost(self, exc: Exception | None) -> None:
        self._tracker.remove_connection(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._response is not None:
            self._response = None
            self._tracker.finish_call()

    def abort(self) -> None:
        self._transport.abort()

    def _answer_requests(self) -> None:
        """Answer the requests that have arrived, up to the first one whose response is delayed."""
        while self._response is None and not self._transport.is_closing():
            try:
                request = self._take_request()
            except ValueError as error:
                self._transport.write(build_json_response(400, {"error": {"message": str(error)}}).parts[0])
                self._transport.close()
                return
            if request is None:
                return
            self._tracker.start_call()
            self._response = self._respond(*request)
            if self._response.parts:
                self._send_parts(self._response, 0, self._loop.time() + self._response.delay)

    def _take_request(self) -> tuple[RequestHead, bytes] | None:
        """Return the next request, or None if it has not fully arrived."""
        if self._head is None:
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                if len(self._received) > LONGEST_HEAD:
                    raise ValueError("the request head is too long")
                return None
            self._head = RequestHead.parse(bytes(self._received[:end]))
            del self._received[: end + 4]
        head = self._head
        if len(self._received) < head.body_size:
            return None
        body = bytes(self._received[: head.body_size])
        del self._received[: head.body_size]
        self._head = None
        return head, body

    def _send_parts(self, response: TimedResponse, place: int, moment: float) -> None:
        """Send the parts, starting at index `place` and time `moment`. A timer sends the parts that are not due yet."""
        while place < len(response.parts):
            if moment > self._loop.time():
                self._timer = self._loop.call_at(moment, self._continue_sending, response, place, moment)
                return
            self._transport.write(response.parts[place])
            place += 1
            moment += response.pace
        if response.breaks:
            self._transport.close()
        else:
            self._response = None
            self._tracker.finish_call()

    def _continue_sending(self, response: TimedResponse, place: int, moment: float) -> None:
        self._send_parts(response, place, moment)
        self._answer_requests()
