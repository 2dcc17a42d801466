"""A pipe: lines over a connected socket, both ways, with nothing kept but what is in hand.

What the other side does not read stays with whoever wants to send it, and only for so long.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from contextlib import suppress

from anyio import ClosedResourceError, move_on_after, notify_closing, wait_readable, wait_writable

from ..errors import PodiumError
from .frame import Frames, Line

CHUNK = 64 * 1024


class Gone(PodiumError):
    """The other side is not there any more; the text says how that came."""


class Pipe:
    """One task at a time may read from it, and one may write to it."""

    def __init__(self, connection: socket.socket, *, longest: int) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._frames = Frames(longest)
        self._lines: deque[Line] = deque()
        self._unsent = memoryview(b"")

    async def line(self, *, silence: float) -> Line:
        """The next line. Raises Gone, also where nothing at all comes for so many seconds."""
        while not self._lines:
            self._lines.extend(self._frames.feed(await self._received(silence)))
        return self._lines.popleft()

    async def write(self, line: bytes, *, within: float) -> None:
        """Hand a line to the system. Raises Gone, also where the other side makes no room for it in so many seconds.

        A line that was begun when its writer was cancelled is finished by the next one, so that lines stay whole.
        """
        with move_on_after(within) as waiting:
            await self._flush()
            self._unsent = memoryview(line)
            await self._flush()
        if waiting.cancelled_caught:
            raise Gone(f"the other side has not read for {within:g} s")

    def cut(self) -> None:
        """End the connection both ways; whoever reads or writes learns of it."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        if self._socket.fileno() >= 0:
            notify_closing(self._socket)
            self._socket.close()

    async def _received(self, silence: float) -> bytes:
        while True:
            self._must_be_open()
            with move_on_after(silence) as waiting:
                # Also where more is there already: a peer that never stops must not keep others from running.
                with suppress(ClosedResourceError):
                    await wait_readable(self._socket)
            try:
                data = self._socket.recv(CHUNK)
            except BlockingIOError:
                if waiting.cancelled_caught:
                    raise Gone(f"the other side was silent for {silence:g} s") from None
                continue
            except OSError:
                data = b""
            if not data:
                raise Gone("the other side closed the connection")
            return data

    async def _flush(self) -> None:
        while self._unsent:
            self._must_be_open()
            try:
                sent = self._socket.send(self._unsent)
            except BlockingIOError:
                with suppress(ClosedResourceError):
                    await wait_writable(self._socket)
            except OSError:
                raise Gone("the other side closed the connection") from None
            else:
                self._unsent = self._unsent[sent:]

    def _must_be_open(self) -> None:
        if self._socket.fileno() < 0:
            raise Gone("the connection was closed here")


def peer(connection: socket.socket) -> int | None:
    """Whose process is at the other end, as the system knows it; None where it does not tell."""
    if not hasattr(socket, "SO_PEERCRED"):
        # The directory and the token have to do there.
        return None
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(user)
