"""Read and write streams of lines, such as the standard input and output of programs."""

from __future__ import annotations

import os
import select
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

from anyio import BrokenResourceError, Lock, wait_readable, wait_writable

ReadBytes = Callable[[], Awaitable[bytes]]
"""Returns some bytes as soon as there are any, or b"" at the end of the stream."""
WriteBytes = Callable[[bytes], Awaitable[None]]
"""Writes all the bytes. Raises BrokenResourceError or ClosedResourceError if the stream is closed."""

CHUNK = 65536


async def iterate_lines(read: ReadBytes, *, longest: int) -> AsyncIterator[bytes | None]:
    """Yield the complete lines that are not blank. If a line has more than `longest` bytes, yield None and end."""
    buffer, searched = bytearray(), 0
    while chunk := await read():
        buffer += chunk
        while (end := buffer.find(b"\n", searched)) >= 0:
            line = bytes(buffer[:end])
            del buffer[: end + 1]
            searched = 0
            if line.strip():
                yield line
        searched = len(buffer)
        if searched > longest:
            yield None
            return


class DescriptorStream:
    """A stream that reads from one descriptor and writes to another, such as standard input and standard output.

    The descriptors stay in blocking mode, because other processes may share them.
    """

    def __init__(self, read_from: int, write_to: int) -> None:
        self._read_from = read_from
        self._write_to = write_to
        self._writing = Lock()

    async def read(self) -> bytes:
        """Return some bytes as soon as there are any, or b"" at the end of the stream."""
        await _wait_until(wait_readable, self._read_from)
        return os.read(self._read_from, CHUNK)

    async def write(self, data: bytes) -> None:
        """Write all the bytes. Raise BrokenResourceError if nobody reads them any more."""
        rest = memoryview(data)
        async with self._writing:
            while rest:
                await _wait_until(wait_writable, self._write_to)
                try:
                    # A pipe that is ready for writing accepts at least this many bytes without blocking.
                    rest = rest[os.write(self._write_to, rest[: select.PIPE_BUF]) :]
                except BrokenPipeError:
                    raise BrokenResourceError from None


async def _wait_until(wait_ready: Callable[[int], Awaitable[None]], descriptor: int) -> None:
    with suppress(PermissionError):  # a regular file is always ready and cannot be watched
        await wait_ready(descriptor)
