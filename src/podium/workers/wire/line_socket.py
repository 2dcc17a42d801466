"""A pipe: lines over a connected socket, both ways, with little kept but what is in hand.

What comes is taken from the system by the event loop itself, and whoever wants it is called at once: each task that
were woken in between would cost more than a message. What is not taken stays with the system, and so with its
sender. What the other side does not read stays with whoever wants to send it, and only for so long.
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
from .frame import FrameDecoder, Line

CHUNK = 64 * 1024


class ConnectionClosed(PodiumError):
    """The other side is not there any more; the text says how that came."""


class LineStream:
    """One task at a time may read from it, and one may write to it."""

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
        """The next line. Raises Gone."""
        while (line := self.poll_line()) is None:
            self._has_data.clear()
            await self._has_data.wait()
        return line

    def set_callback(self, callback: Callable[[], object], *, silence: float) -> None:
        """Call `hear` now and whenever there is something to take, or nothing at all comes for so many seconds."""
        self._callback, self._silence = callback, silence
        if silence < inf:
            self._received_at = self._loop.time()
            self._watch_silence()
        callback()

    def poll_line(self) -> Line | None:
        """The next line that has come; None where none has. Raises Gone, after all that came before."""
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
        """Hand a line to the system. Raises Gone, also where the other side makes no room for it in so many seconds.

        A line that was begun when its writer was cancelled is finished by the next one, so that lines stay whole.
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
            raise ConnectionClosed(f"the other side has not read for {within:g} s")

    def shut_down(self) -> None:
        """End the connection both ways; whoever reads or writes learns of it."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            self._mark_ended("the connection was closed here")
            notify_closing(self._socket)
            self._socket.close()
            self._callback()

    # What comes

    def _receive_chunk(self, *, is_late: bool = False) -> None:
        """Take what is there, once: a peer that never stops must not keep others from running."""
        try:
            data = self._socket.recv(CHUNK)
        except BlockingIOError:
            if not is_late:
                return
            self._mark_ended(f"the other side was silent for {self._silence:g} s")
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
        """Look whether it has been silent for too long, now and when it may have been next."""
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

    # What goes

    def _try_flush(self) -> bool:
        """Whether the system has taken all that was to be sent, as much as it has room for. Raises Gone."""
        if self._socket.fileno() < 0:
            raise ConnectionClosed("the connection was closed here")
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
    """Whose process is at the other end, as the system knows it; None where it does not tell."""
    if not hasattr(socket, "SO_PEERCRED"):
        # The directory and the token have to do there.
        return None
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(user)
