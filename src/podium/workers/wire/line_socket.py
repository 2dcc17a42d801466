"""Read and write lines, each of which is one message, over a connected socket, with little buffering.

The event loop itself reads the data and calls the receiver at once, because waking a task for each message
would take longer than handling the message. A slow receiver blocks its sender: unread data fills the operating
system's buffers, and the sender gives up after a timeout.

Bytes are decoded only when a line is complete, so a character can be split across two packets. The buffer never
exceeds the limit, whatever the other side sends.
"""

from __future__ import annotations

import socket
import struct
from asyncio import Event, TimerHandle, get_running_loop
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from math import inf

from anyio import ClosedResourceError, move_on_after, notify_closing, wait_writable

from ...values.errors import PodiumError

MAX_FRAME_BYTES = 1024 * 1024
"""The maximum number of bytes in a line, excluding the line break."""


class BadFrame(PodiumError):
    """A received line is not a valid message, or a message cannot be sent.

    The error does not include the line, because it may contain secrets.
    """


class FrameTooLong(BadFrame):
    """A line or message exceeds the limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"a message exceeds the limit of {limit} bytes; send a shorter message")
        self.limit = limit


Line = bytes | FrameTooLong


class FrameDecoder:
    """Splits a stream into lines. The stream can arrive in pieces of any size."""

    def __init__(self, limit: int = MAX_FRAME_BYTES) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._is_over = False

    @property
    def pending_bytes(self) -> int:
        """The number of buffered bytes, which belong to an incomplete line."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[Line]:
        """Return the lines that `data` completes, in order, skipping blank lines.

        As soon as a line exceeds the limit, a FrameTooLong is returned in its place, and nothing after it.
        """
        found: list[Line] = []
        start = 0
        while not self._is_over:
            end = data.find(b"\n", start)
            piece = memoryview(data)[start : end if end >= 0 else len(data)]
            if len(self._buffer) + len(piece) > self._limit:
                self._buffer.clear()
                self._is_over = True
                found.append(FrameTooLong(self._limit))
                break
            self._buffer += piece
            if end < 0:
                break
            if self._buffer and not self._buffer.isspace():
                found.append(bytes(self._buffer))
            self._buffer.clear()
            start = end + 1
        return found


CHUNK = 64 * 1024


class ConnectionClosed(PodiumError):
    """The connection is closed; the message says why."""


class LineStream:
    """A stream of lines. Only one task at a time can read from it, and only one task at a time can write to it."""

    def __init__(self, connection: socket.socket, *, longest: int) -> None:
        connection.setblocking(False)
        self._loop = get_running_loop()
        self._socket = connection
        self._frames = FrameDecoder(longest)
        self._lines: deque[Line] = deque()
        self._unsent = memoryview(b"")
        self._has_data = Event()
        self._callback: Callable[[], object] = self._has_data.set
        self._is_listening = False
        self._silence = inf
        self._received_at = 0.0
        self._timer: TimerHandle | None = None
        self._ending = ""

    async def read_line(self) -> Line:
        """Wait for the next line and return it. Raise ConnectionClosed if no further line can arrive."""
        while (line := self.poll_line()) is None:
            self._has_data.clear()
            await self._has_data.wait()
        return line

    def set_callback(self, callback: Callable[[], object], *, silence: float) -> None:
        """Call `callback` now, whenever there is data to read, and when nothing arrives for `silence` seconds."""
        self._callback, self._silence = callback, silence
        if silence < inf:
            self._received_at = self._loop.time()
            self._watch_silence()
        callback()

    def poll_line(self) -> Line | None:
        """Return the next line, or None if none has arrived. Raise ConnectionClosed if no further line can arrive."""
        if self._lines:
            return self._lines.popleft()
        if self._ending:
            raise ConnectionClosed(self._ending)
        if not self._is_listening:
            self._is_listening = True
            self._received_at = self._loop.time()
            self._loop.add_reader(self._socket, self._receive_chunk)
        return None

    async def write_line(self, line: bytes, *, within: float) -> None:
        """Write a line. Raise ConnectionClosed if that fails or takes longer than `within` seconds.

        If a writer is cancelled halfway through a line, the next writer completes it, so that lines stay intact.
        """
        if not self._unsent:
            self._unsent = memoryview(line)
            if self._try_flush():
                return
            line = b""
        with move_on_after(within) as waiting:
            await self._flush()
            self._unsent = memoryview(line)
            await self._flush()
        if waiting.cancelled_caught:
            raise ConnectionClosed(f"the other side did not read the data within {within:g} s")

    def shut_down(self) -> None:
        """Shut down the connection in both directions; readers and writers are notified."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            self._mark_ended("the connection was closed locally")
            notify_closing(self._socket)
            self._socket.close()
            self._callback()

    # Receiving

    def _receive_chunk(self, *, is_late: bool = False) -> None:
        """Read only one chunk per call, so that a peer that never stops sending does not block other tasks."""
        try:
            data = self._socket.recv(CHUNK)
        except BlockingIOError:
            if not is_late:
                return
            self._mark_ended(f"the other side sent nothing for {self._silence:g} s")
        except OSError:
            self._mark_ended("the other side closed the connection")
        else:
            self._received_at = self._loop.time()
            self._lines.extend(self._frames.feed(data))
            if not data:
                self._mark_ended("the other side closed the connection")
        self._callback()
        if self._lines:
            self._stop_reading()

    def _watch_silence(self) -> None:
        """Check whether the other side has been silent for too long, and schedule the next check."""
        now = self._loop.time()
        if self._is_listening and self._received_at + self._silence <= now:
            self._receive_chunk(is_late=True)
        if not self._ending:
            since = self._received_at if self._is_listening else now
            self._timer = self._loop.call_at(since + self._silence, self._watch_silence)

    def _stop_reading(self) -> None:
        if self._is_listening:
            self._is_listening = False
            self._loop.remove_reader(self._socket)

    def _mark_ended(self, why: str) -> None:
        self._stop_reading()
        self._ending = self._ending or why
        if self._timer is not None:
            self._timer.cancel()

    # Sending

    def _try_flush(self) -> bool:
        """Send as much as the system accepts. Return whether everything was sent; raise ConnectionClosed on failure."""
        if self._socket.fileno() < 0:
            raise ConnectionClosed("the connection was closed locally")
        try:
            self._unsent = self._unsent[self._socket.send(self._unsent) :]
        except BlockingIOError:
            return False
        except OSError:
            raise ConnectionClosed("the other side closed the connection") from None
        return not self._unsent

    async def _flush(self) -> None:
        while self._unsent and not self._try_flush():
            with suppress(ClosedResourceError):
                await wait_writable(self._socket)


def read_peer_uid(connection: socket.socket) -> int | None:
    """Return the user id of the process at the other end, or None if the operating system does not provide it."""
    if not hasattr(socket, "SO_PEERCRED"):
        # Without the user id, the private folder and the token are the only protection.
        return None
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(user)
