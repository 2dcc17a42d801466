"""A command that a client runs on the server's machine, and the frames that carry its output back.

A frame is the number of a stream (1 or 2), the length of the data, and the data. A frame for stream 0 is the last one
and contains the exit code. A frame without data only shows that the connection works.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from msgspec import Struct

STDOUT, STDERR, EXIT = 1, 2, 0
FRAME_HEAD = struct.Struct(">BI")


class CallerTerminal(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The terminal where a client shows the output. The defaults are for output to a file."""

    columns: int = 80
    lines: int = 24
    has_stdout: bool = False
    """Whether standard output is a terminal."""
    has_stderr: bool = False
    name: str = "dumb"
    """The value of TERM."""
    is_unicode: bool = True
    has_colours: bool = False
    utc_offset: int = 0
    """The client's time zone, in seconds east of UTC."""


class RemoteCommand(Struct, frozen=True, kw_only=True):
    """A command and its caller. `input` is the command's standard input."""

    arguments: tuple[str, ...]
    scopes: tuple[Literal["read", "act", "approve"], ...]
    input: bytes = b""
    terminal: CallerTerminal = CallerTerminal()


class Frame(NamedTuple):
    """A piece of a command's output, or its exit code."""

    stream: int
    data: bytes


def encode_frame(stream: int, data: bytes) -> bytes:
    """Return a frame as bytes."""
    return FRAME_HEAD.pack(stream, len(data)) + data


HEARTBEAT = encode_frame(STDOUT, b"")


def read_frames(read: Callable[[int], bytes]) -> Iterator[Frame]:
    """Yield the frames up to the exit code. Raise EOFError if they are incomplete.

    `read` returns exactly the given number of bytes, or fewer at the end of the output.
    """
    while True:
        head = read(FRAME_HEAD.size)
        if len(head) < FRAME_HEAD.size:
            raise EOFError("the output has no exit code")
        stream, size = FRAME_HEAD.unpack(head)
        data = read(size)
        if len(data) < size:
            raise EOFError("the output ends in the middle of a frame")
        yield Frame(stream, data)
        if stream == EXIT:
            return
