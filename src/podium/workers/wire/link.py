"""Exchange messages over a link, which is one end of a connection between a worker and its commander.

A link preserves the order of messages, sends or answers pings, and closes if the other side sends invalid lines,
does not read, or is silent for too long. The worker and the commander interpret the messages themselves.
"""

from __future__ import annotations

import secrets
import time
from asyncio import Event
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from anyio import Lock, create_task_group, move_on_after, sleep
from anyio.lowlevel import checkpoint

from ...values.plain_text import escape_unprintable, truncate_text
from .line_socket import MAX_FRAME_BYTES, BadFrame, ConnectionClosed, FrameTooLong, Line, LineStream
from .wire_message import (
    FromCommander,
    FromWorker,
    Handshake,
    HandshakeAck,
    Order,
    Ping,
    Pong,
    Report,
    decode_from_commander,
    decode_from_worker,
    encode_message,
    stamp_message,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLimits:
    """The limits of a connection.

    `frame` and `early` are in bytes. `handshake`, `ping`, `silence` and `unread` are in seconds. The others are counts.

    `early` is the maximum size of the messages that are buffered until the handshake is answered. `unread` is how long
    the other side may take to read a message. `inbox` is the maximum number of received messages waiting to be
    handled. `unauthenticated` is the maximum number of open connections without a completed handshake.
    """

    frame: int = MAX_FRAME_BYTES
    early: int = MAX_FRAME_BYTES
    handshake: float = 10.0
    ping: float = 30.0
    silence: float = 60.0
    unread: float = 60.0
    bad_lines: int = 3
    inbox: int = 16
    unauthenticated: int = 64


class HandshakeRejected(ConnectionClosed):
    """The handshake was rejected; the message says why."""


DEFAULT_LIMITS = LinkLimits()

OnBadFrame = Callable[[BadFrame], None]
"""Called with the error for each bad line, which is then skipped."""

Heard = TypeVar("Heard", bound=Report | Order)
Said = TypeVar("Said", bound=Report | Order)
ControlMessage = Handshake | HandshakeAck | Ping | Pong
"""Messages that the link itself handles and does not return to its caller."""


class Link(Generic[Heard, Said]):
    """One end of a connection. Iterating over a link yields received messages until the connection closes.

    The link's tasks run in the block that opened the link.
    """

    def __init__(
        self,
        stream: LineStream,
        decode: Callable[[bytes], Heard | ControlMessage],
        *,
        limits: LinkLimits,
        on_bad: OnBadFrame,
    ) -> None:
        self._stream = stream
        self._decode = decode
        self._limits = limits
        self._on_bad = on_bad
        self._bad = 0
        self._sending = Lock(fast_acquire=True)
        self._inbox: deque[Heard] = deque()
        self._has_news = Event()
        self._is_over = False
        self._early = bytearray()
        self._ack: HandshakeAck | None = None
        self._is_answered = Event()
        self._is_open = Event()
        self._was_pinged = Event()
        self._ending: ConnectionClosed | None = None

    async def send(self, message: Said) -> None:
        """Send a message. Messages are sent in the order in which `send` is called.

        Raise BadFrame if the message cannot be sent, and ConnectionClosed if the link is closed.

        Until the handshake is answered, messages are buffered, and `send` waits only if the buffer is full. After
        that, `send` waits until the other side reads; the connection is closed if this takes too long.
        """
        line = encode_line(message, self._limits)
        async with self._sending:
            if not self._is_open.is_set() and len(self._early) + len(line) <= self._limits.early:
                self._early += line
                return
            await self._is_open.wait()
            await self._write_line(line)

    async def receive(self) -> Heard:
        """Wait for the next message and return it. Raise ConnectionClosed if no further message can arrive."""
        if self._inbox:
            # A peer that sends a lot must not block other tasks.
            await checkpoint()
        while not self._inbox:
            if self._is_over:
                raise self._make_closed_error()
            self._has_news.clear()
            await self._has_news.wait()
        message = self._inbox.popleft()
        self._receive_pending()
        return message

    def __aiter__(self) -> Link[Heard, Said]:
        return self

    async def __anext__(self) -> Heard:
        try:
            return await self.receive()
        except HandshakeRejected:
            raise
        except ConnectionClosed:
            raise StopAsyncIteration from None

    async def wait_accepted(self) -> dict[str, Any]:
        """Wait until the handshake is accepted, and return the worker's configuration.

        Raise HandshakeRejected if the handshake is rejected, and ConnectionClosed if the connection closes first.
        """
        await self._is_open.wait()
        if self._ack is None or self._ending is not None:
            raise self._make_closed_error()
        return self._ack.config

    @property
    def end_reason(self) -> str:
        """Why the connection closed, or an empty string while it is open."""
        return "" if self._ending is None else str(self._ending)

    # Receiving

    def _receive_pending(self) -> None:
        """Handle received lines until the inbox is full."""
        if self._is_over:
            return
        try:
            while len(self._inbox) < self._limits.inbox and (line := self._stream.poll_line()) is not None:
                if isinstance(line, FrameTooLong):
                    self._on_bad(line)
                    raise ConnectionClosed(f"the other side sent a line of more than {line.limit} bytes")
                try:
                    self._handle_message(self._decode(line))
                    self._bad = 0
                except BadFrame as error:
                    self._bad += 1
                    self._on_bad(error)
                if self._bad == self._limits.bad_lines:
                    raise ConnectionClosed(f"the other side sent {self._bad} bad lines in a row")
        except ConnectionClosed as gone:
            self._mark_closed(gone)
            self._is_over = True
        if self._inbox or self._is_over:
            self._has_news.set()

    def _handle_message(self, message: Heard | ControlMessage) -> None:
        if isinstance(message, HandshakeAck):
            self._handle_ack(message)
        elif isinstance(message, Handshake) or not (self._is_open.is_set() or self._ack):
            raise BadFrame("message out of order: one handshake and its answer must precede all other messages")
        elif isinstance(message, Ping):
            self._was_pinged.set()
        elif not isinstance(message, Pong):
            self._inbox.append(message)

    def _handle_ack(self, ack: HandshakeAck) -> None:
        if self._ack is not None:
            raise BadFrame("message out of order: the handshake was already answered")
        if not ack.accepted:
            raise HandshakeRejected(
                f"the commander rejected the handshake: {truncate_text(escape_unprintable(ack.error), 500)}"
            )
        self._ack = ack
        self._is_answered.set()

    # Tasks

    async def _send_pings(self) -> None:
        """Send a ping at regular intervals. This task runs on the commander's side of the connection."""
        with suppress(ConnectionClosed):
            while True:
                await sleep(self._limits.ping)
                await self._send_control(Ping())

    async def _answer_pings(self) -> None:
        """Wait until the handshake is answered, send the buffered messages, and then answer pings.

        This task runs on the worker's side of the connection.
        """
        with suppress(ConnectionClosed):
            with move_on_after(self._limits.handshake):
                await self._is_answered.wait()
            if self._ack is None:
                self._mark_closed(
                    ConnectionClosed(f"the handshake was not answered within {self._limits.handshake:g} s")
                )
                return
            # Until `_is_open` is set, other senders only add to the buffer, so only this task writes to the stream.
            while self._early:
                said, self._early = bytes(self._early), bytearray()
                await self._write_line(said)
            self._is_open.set()
            while True:
                await self._was_pinged.wait()
                self._was_pinged.clear()
                await self._send_control(Pong())

    async def _send_control(self, message: Ping | Pong) -> None:
        async with self._sending:
            await self._write_line(encode_line(message, self._limits))

    async def _write_line(self, line: bytes) -> None:
        if self._ending is not None:
            raise self._make_closed_error()
        try:
            await self._stream.write_line(line, within=self._limits.unread)
        except ConnectionClosed as gone:
            self._mark_closed(gone)
            raise

    def _mark_closed(self, gone: ConnectionClosed) -> None:
        self._ending = self._ending or gone
        self._is_open.set()
        self._stream.shut_down()

    def _close(self) -> None:
        self._mark_closed(ConnectionClosed("the connection was closed locally"))
        self._inbox.clear()
        self._stream.close()

    def _make_closed_error(self) -> ConnectionClosed:
        return (
            type(self._ending)(str(self._ending))
            if self._ending
            else ConnectionClosed("the connection was closed locally")
        )


@asynccontextmanager
async def open_worker_link(
    stream: LineStream, *, limits: LinkLimits, on_bad: OnBadFrame
) -> AsyncIterator[Link[Order, Report]]:
    """Open the worker's side of a connection, and close it when the block ends.

    Until the commander answers the handshake, sent messages are buffered.
    """
    link: Link[Order, Report] = Link(stream, decode_from_commander, limits=limits, on_bad=on_bad)
    async with _run_link(link, link._answer_pings):
        yield link


@asynccontextmanager
async def open_commander_link(
    stream: LineStream, *, limits: LinkLimits, on_bad: OnBadFrame
) -> AsyncIterator[Link[Report, Order]]:
    """Open the commander's side of a connection, and close it when the block ends.

    The worker's handshake must already have been accepted.
    """
    link: Link[Report, Order] = Link(stream, decode_from_worker, limits=limits, on_bad=on_bad)
    link._is_open.set()
    async with _run_link(link, link._send_pings):
        yield link


@asynccontextmanager
async def _run_link(link: Link[Heard, Said], keepalive: Callable[[], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Receive messages and run the keepalive until the block ends, then close the link."""
    trouble: Exception | None = None
    try:
        async with create_task_group() as group:
            group.start_soon(keepalive)
            link._stream.set_callback(link._receive_pending, silence=link._limits.silence)
            try:
                yield
            except Exception as error:
                # Raised below, outside the task group, so that it is not wrapped in an exception group.
                trouble = error
            group.cancel_scope.cancel()
    finally:
        link._close()
    if trouble is not None:
        raise trouble


def encode_line(message: FromWorker | FromCommander, limits: LinkLimits) -> bytes:
    """Return the message as a line, with an id and the current time. Raise BadFrame if the message cannot be sent."""
    line = encode_message(stamp_message(message, id=secrets.token_hex(8), timestamp=time.time_ns() // 1_000_000))
    if len(line) > limits.frame + 1:
        raise FrameTooLong(limits.frame)
    return line


def unwrap_line(line: Line) -> bytes:
    """Return `line` if it is bytes, or raise it if it is a FrameTooLong error."""
    if isinstance(line, FrameTooLong):
        raise line
    return line
