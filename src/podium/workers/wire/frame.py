"""Split a stream of bytes into frames: lines that contain one message each.

Bytes are decoded only when a line is complete, so a character can be split across two packets. The buffer never
exceeds the limit, whatever the other side sends.
"""

from __future__ import annotations

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
