"""Reading one file that somebody else wrote: a regular one, of bounded size, that does not leave its root.

Nothing here waits: a pipe, a socket or a device is refused before it is read.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

MAX_FILE_BYTES = 1024 * 1024

_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_REASONS = {
    errno.ELOOP: "is a symbolic link that leads back to itself; a regular file would be right",
    errno.ENOENT: "does not exist, or links to something that does not",
    errno.EACCES: "may not be read by this user; change its permissions",
    errno.EPERM: "may not be read by this user; change its permissions",
}


class UnreadableFile(Exception):
    """The file cannot be read; the message continues a sentence that begins with its path."""


def read_file_bytes(path: Path, *, root: Path | None = None) -> bytes:
    """The bytes of `path`, which has to be inside `root` after all links are followed."""
    try:
        real = path.resolve(strict=True)
        if root is not None and not real.is_relative_to(root.resolve()):
            raise UnreadableFile("leads out of the repository, where nothing is read; a copy inside would be right")
        if not stat.S_ISREG(mode := real.stat().st_mode):
            raise UnreadableFile(f"is {_describe_file_kind(mode)}; a regular file would be right")
        return _read_bounded(real)
    except RuntimeError as error:  # how pathlib tells a loop of links before Python 3.13
        raise UnreadableFile(_REASONS[errno.ELOOP]) from error
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, f"cannot be read: {error.strerror or error}")
        raise UnreadableFile(reason) from error


def read_text_file(path: Path, *, root: Path | None = None) -> str:
    """The text of `path`: UTF-8, with or without a byte order mark, lines ended by `\\n`."""
    return decode_text(read_file_bytes(path, root=root))


def decode_text(data: bytes) -> str:
    """`data` as text, refused where it is too long or no text."""
    if len(data) > MAX_FILE_BYTES:
        raise UnreadableFile("has more than 1 MiB; an agent's file is at most that long")
    if (zero := data.find(0)) >= 0:
        raise UnreadableFile(
            f"has a NUL byte on line {data.count(10, 0, zero) + 1}, as binary files do; plain text is right"
        )
    try:
        found = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(10, 0, error.start) + 1
        raise UnreadableFile(
            f"is not UTF-8: byte 0x{data[error.start]:02x} on line {line}; save it as UTF-8"
        ) from error
    return found.replace("\r\n", "\n").replace("\r", "\n")


def _read_bounded(real: Path) -> bytes:
    """At most one byte more than allowed, so that the reader can tell."""
    descriptor = os.open(real, _FLAGS)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(mode := os.fstat(descriptor).st_mode):
            raise UnreadableFile(f"is {_describe_file_kind(mode)}; a regular file would be right")
        return file.read(MAX_FILE_BYTES + 1)


def _describe_file_kind(mode: int) -> str:
    """What a file that is not regular is."""
    if stat.S_ISDIR(mode):
        return "a folder"
    if stat.S_ISFIFO(mode):
        return "a pipe"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"
