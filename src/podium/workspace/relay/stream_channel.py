"""The relay's end of a sandbox's socket pair: it accepts the streams that the sandbox opens, and serves each of them.

The sandbox is not trusted. Only plain bytes are read, so descriptors that are sent with them are discarded by the
kernel. A frame that the protocol does not allow closes the socket pair. A stream's buffer is limited by its window, and
while the sandbox does not read, nothing more is read from it.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from anyio import (
    BrokenResourceError,
    CancelScope,
    ClosedResourceError,
    EndOfStream,
    Event,
    Lock,
    create_task_group,
    move_on_after,
    notify_closing,
    wait_readable,
    wait_writable,
)
from anyio.abc import ByteStream, TaskGroup

from ._forwarder_program import (
    CHUNK,
    CREDIT,
    DATA,
    END,
    GRANT,
    HIGHEST_STREAM,
    LARGEST_PAYLOAD,
    MOST_CONNECTIONS,
    OPEN,
    READY,
    RESET,
    WINDOW,
    FrameDecoder,
    InvalidFrame,
    encode_frame,
)

MOST_STREAMS = 2 * MOST_CONNECTIONS
"""The maximum number of streams that are served at the same time. Other streams are closed at once."""
LINGER_SECONDS = 2.0
"""How long a stream stays open after the response was sent, so that the client can read the whole response."""

ServeStream = Callable[[ByteStream], Awaitable[None]]
"""Serves one connection from the sandbox until it ends."""


class RelayStream(ByteStream):
    """One connection from the sandbox."""

    def __init__(self, channel: StreamChannel, number: int) -> None:
        self.scope = CancelScope()
        """The scope of the task that serves this stream; cancelled when the sandbox closes the stream."""
        self._channel = channel
        self._number = number
        self._received: list[bytes] = []
        self.has_ended = False
        """Whether the sandbox has sent all its data."""
        self._is_ended_here = False
        self._changed = Event()
        self._receive_window = WINDOW
        self._send_window = WINDOW
        self._consumed = 0

    async def receive(self, max_bytes: int = CHUNK) -> bytes:
        while not self._received:
            if self.has_ended:
                raise EndOfStream
            await self._wait_change()
        data = self._received.pop(0)
        if len(data) > max_bytes:
            data, rest = data[:max_bytes], data[max_bytes:]
            self._received.insert(0, rest)
        self._consumed += len(data)
        if self._consumed >= WINDOW // 2 and not self.has_ended:
            granted, self._consumed = self._consumed, 0
            self._receive_window += granted
            await self._channel.send_frame(GRANT, self._number, CREDIT.pack(granted))
        return data

    async def send(self, item: bytes) -> None:
        if self._is_ended_here:
            raise ClosedResourceError
        rest = memoryview(item)
        while rest:
            while not self._send_window:
                await self._wait_change()
            part = rest[: min(self._send_window, LARGEST_PAYLOAD)]
            self._send_window -= len(part)
            await self._channel.send_frame(DATA, self._number, part)
            rest = rest[len(part) :]

    async def send_eof(self) -> None:
        if not self._is_ended_here:
            self._is_ended_here = True
            await self._channel.send_frame(END, self._number)

    async def aclose(self) -> None:
        """Tell the sandbox that no more data follows. The channel closes the stream when its task ends."""
        await self.send_eof()

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        return {}

    # Handling frames from the sandbox

    def add_data(self, data: bytes) -> None:
        """Add received data. Raise InvalidFrame if it exceeds what the sandbox was allowed to send."""
        if self.has_ended or len(data) > self._receive_window:
            raise InvalidFrame(f"received {len(data)} bytes on stream {self._number}, which is more than allowed")
        if data:
            self._receive_window -= len(data)
            self._received.append(data)
            self._note_change()

    def add_end(self) -> None:
        """Record that the sandbox has sent all its data."""
        self.has_ended = True
        self._note_change()

    def add_credit(self, payload: bytes) -> None:
        """Increase the number of bytes that can be sent. Raise InvalidFrame if the window would be too large."""
        credit = CREDIT.unpack(payload)[0] if len(payload) == CREDIT.size else WINDOW + 1
        if self._send_window + credit > WINDOW:
            raise InvalidFrame(f"the window of stream {self._number} would exceed {WINDOW} bytes")
        self._send_window += credit
        self._note_change()

    def _note_change(self) -> None:
        self._changed.set()

    async def _wait_change(self) -> None:
        self._changed = Event()
        await self._changed.wait()


class StreamChannel:
    """The relay's end of the socket pair. `services` serve the streams, in the order of the forwarder's ports.

    `report` is called with a message if a connection fails or the sandbox violates the protocol.
    """

    def __init__(
        self,
        pair: socket.socket,
        services: Sequence[ServeStream],
        *,
        report: Callable[[str], object] = lambda text: None,
    ) -> None:
        pair.setblocking(False)
        self._pair = pair
        self._services = services
        self._report = report
        self._decoder = FrameDecoder()
        self._streams: dict[int, RelayStream] = {}
        self._last_stream = 0
        self._is_started = False
        self._sending = Lock()
        self._unsent = memoryview(b"")

    async def serve(self) -> None:
        """Tell the forwarder to start the program once the forwarder is ready, and serve the program's streams.

        Return when the socket pair closes.
        """
        try:
            async with create_task_group() as group:
                with suppress(BrokenResourceError, ClosedResourceError):
                    await self._receive_frames(group)
                group.cancel_scope.cancel()
        except* InvalidFrame as errors:
            self._report(
                "The sandbox's connection to its model and tools was closed, because a program in the sandbox sent "
                f"invalid data over it ({errors.exceptions[0]})."
            )
        finally:
            self.close()

    def close(self) -> None:
        """Close the socket pair. The forwarder then exits, which closes the connections in the sandbox."""
        if self._pair.fileno() >= 0:
            notify_closing(self._pair)
            self._pair.close()

    async def send_frame(self, kind: int, stream: int = 0, payload: bytes | memoryview = b"") -> None:
        """Send a frame. Raise BrokenResourceError if the socket pair is closed.

        If a sender is cancelled halfway through a frame, the next sender completes the frame.
        """
        frame = encode_frame(kind, stream, payload)
        async with self._sending:
            await self._flush()
            self._unsent = memoryview(frame)
            await self._flush()

    async def _flush(self) -> None:
        while self._unsent:
            try:
                self._unsent = self._unsent[self._pair.send(self._unsent) :]
            except BlockingIOError:
                await wait_writable(self._pair)
            except OSError as error:
                raise BrokenResourceError from error

    async def _receive_frames(self, group: TaskGroup) -> None:
        while True:
            await wait_readable(self._pair)
            try:
                # `recv` has no room for descriptors, so the kernel discards any that were sent.
                data = self._pair.recv(CHUNK)
            except BlockingIOError:
                continue
            except OSError:
                return
            if not data:
                return
            for kind, stream, payload in self._decoder.feed(data):
                await self._handle_frame(group, kind, stream, payload)

    async def _handle_frame(self, group: TaskGroup, kind: int, number: int, payload: bytes) -> None:
        if kind == READY:
            if not self._is_started:
                self._is_started = True
                await self.send_frame(READY)
            return
        if kind == OPEN:
            await self._open_stream(group, number, payload)
            return
        if not 0 < number <= self._last_stream:
            raise InvalidFrame(f"stream {number} was never opened")
        stream = self._streams.get(number)
        if stream is None:
            return  # closed by this side in the meantime
        if kind == DATA:
            stream.add_data(payload)
        elif kind == END:
            stream.add_end()
        elif kind == GRANT:
            stream.add_credit(payload)
        else:
            self._streams.pop(number)
            stream.scope.cancel()

    async def _open_stream(self, group: TaskGroup, number: int, payload: bytes) -> None:
        is_next = self._last_stream < number <= HIGHEST_STREAM
        if not is_next or len(payload) != 1 or payload[0] >= len(self._services):
            raise InvalidFrame(f"stream {number} cannot be opened")
        self._last_stream = number
        if len(self._streams) >= MOST_STREAMS:
            await self.send_frame(RESET, number)
            return
        stream = self._streams[number] = RelayStream(self, number)
        group.start_soon(self._serve_stream, stream, number, self._services[payload[0]])

    async def _serve_stream(self, stream: RelayStream, number: int, serve_stream: ServeStream) -> None:
        has_ended = False
        with stream.scope, suppress(BrokenResourceError, ClosedResourceError):
            try:
                await serve_stream(stream)
            except EndOfStream:
                pass
            except (BrokenResourceError, ClosedResourceError):
                raise
            except Exception as error:
                # Invalid data from one program or server must not close the other connections.
                self._report(f"A connection from the sandbox failed: {type(error).__name__}: {error}.")
            await stream.send_eof()
            # The program may still be sending. If its connection were closed now, it could lose part of the response.
            with move_on_after(LINGER_SECONDS), suppress(EndOfStream):
                while True:
                    await stream.receive()
            has_ended = stream.has_ended
        if self._streams.pop(number, None) is not None and not has_ended:
            with suppress(BrokenResourceError, ClosedResourceError):
                await self.send_frame(RESET, number)
