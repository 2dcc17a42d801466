"""Frames: the lines in which messages travel, taken out of a stream of bytes.

Bytes stay bytes until a line is whole, so that a letter may be split over two packets. What is held
meanwhile never exceeds the limit, whatever comes.
"""

from __future__ import annotations

from ...values.errors import PodiumError

MAX_FRAME_BYTES = 1024 * 1024
"""How many bytes a line has at most, its end not counted."""


class BadFrame(PodiumError):
    """A line that is no message. What it held is not repeated, since that may be a secret."""


class FrameTooLong(BadFrame):
    """A line, or a message that would be one, of more bytes than the limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"a message has more than {limit} bytes, which is the limit; send less of it")
        self.limit = limit


Line = bytes | FrameTooLong


class FrameDecoder:
    """A stream as it comes in, in pieces of any size, and the lines that it is made of."""

    def __init__(self, limit: int = MAX_FRAME_BYTES) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._is_skipping = False

    @property
    def pending_bytes(self) -> int:
        """How many bytes of an unfinished line are kept."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[Line]:
        """The lines that `data` completes, in order; a line that grows too long is one TooLong as soon as it does."""
        found: list[Line] = []
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            found += self._buffer_piece(data[start:end])
            if not self._is_skipping:
                found.append(bytes(self._buffer))
            self._buffer.clear()
            self._is_skipping = False
            start = end + 1
        return found + self._buffer_piece(data[start:])

    def _buffer_piece(self, piece: bytes) -> list[Line]:
        if self._is_skipping:
            return []
        if len(self._buffer) + len(piece) <= self._limit:
            self._buffer += piece
            return []
        self._buffer.clear()
        self._is_skipping = True
        return [FrameTooLong(self._limit)]
