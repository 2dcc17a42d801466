"""Replace whole files atomically, and read untrusted files within limits.

A reader of a replaced file sees either the old content or the new content. Reading never blocks: pipes, sockets and
devices are rejected before they are read.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from ..values.errors import Mistake
from .owned_files import make_private_folder

MAX_FILE_BYTES = 1024 * 1024
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_REASONS = {
    errno.ELOOP: "is part of a symbolic link loop; use a regular file",
    errno.ENOENT: "does not exist; create it or correct its path",
    errno.EACCES: "is not readable by this user; change its permissions",
    errno.EPERM: "is not readable by this user; change its permissions",
}


class UnreadableFile(Exception):
    """The file cannot be read. The message continues a sentence that starts with the path."""


def replace_file(path: Path, data: bytes) -> None:
    """Write `data` to `path` atomically, following symbolic links. A new file is readable only by its owner.

    Raise Mistake if the file cannot be written.
    """
    with open_replacement(path) as file:
        file.write(data)


@contextmanager
def open_replacement(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `path` when the block ends, and is deleted if the block fails.

    Symbolic links are followed, and a new file is readable only by its owner. Raise Mistake if it cannot be written.
    """
    from tempfile import mkstemp  # imported here for start-up time: most commands write no file

    real = path.resolve()
    try:
        make_private_folder(real.parent)
        mode = stat.S_IMODE(real.stat().st_mode) if real.exists() else 0o600
        handle, name = mkstemp(dir=real.parent, prefix=f".{real.name}.")
    except OSError as error:
        raise Mistake(f"{path} cannot be written: {error.strerror or error}; check its folder's permissions") from error
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(handle)
        Path(name).chmod(mode)
        Path(name).replace(real)
        flush_paths([real.parent])
    except BaseException as error:
        Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise Mistake(f"{path} cannot be written: {error.strerror or error}") from error
        raise


def flush_paths(paths: Iterable[Path]) -> None:
    """Flush files, and the names in folders, so that they survive a power failure. Missing ones are skipped."""
    for path in paths:
        with suppress(OSError):  # it is gone, or the system cannot flush a folder
            handle = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


_WAIT_AND_WRITE = 1 | 2 | 4
"""The flags with which `sync_file_range` writes all of a file's data and waits until it is written."""


def write_out_files(paths: Iterable[Path]) -> None:
    """Write the content of files to disk and wait until it is written. Missing files and links are skipped.

    The files survive a power failure once another file in their file system has been flushed.
    """
    libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
    for path in paths:
        with suppress(OSError):
            handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0))
            try:
                size = ctypes.c_int64(0)
                if libc is None or libc.sync_file_range(handle, size, size, _WAIT_AND_WRITE) != 0:
                    os.fsync(handle)
            finally:
                os.close(handle)


def read_file_bytes(path: Path, *, root: Path | None = None) -> bytes:
    """Return the content of `path`. If the file is too long, return its first MAX_FILE_BYTES + 1 bytes.

    Raise UnreadableFile unless it is a regular file and, if `root` is given, its real path is in `root`.
    """
    try:
        real = path.resolve(strict=True)
        if root is not None and not real.is_relative_to(root.resolve()):
            raise UnreadableFile("is outside the repository and is not read; copy it into the repository")
        if not stat.S_ISREG(mode := real.stat().st_mode):
            raise UnreadableFile(f"is {_describe_file_kind(mode)}; use a regular file")
        return _read_bounded(real)
    except RuntimeError as error:  # pathlib raises this for a symlink loop before Python 3.13
        raise UnreadableFile(_REASONS[errno.ELOOP]) from error
    except OSError as error:
        if error.errno == errno.ENOENT and path.is_symlink():
            raise UnreadableFile("is a broken symbolic link; use a regular file") from error
        reason = _REASONS.get(error.errno or 0, f"cannot be read: {error.strerror or error}")
        raise UnreadableFile(reason) from error


def read_text_file(path: Path, *, root: Path | None = None) -> str:
    """Return the text of `path`, a UTF-8 file with or without a byte order mark. Line endings become `\\n`."""
    return decode_text(read_file_bytes(path, root=root))


def decode_text(data: bytes) -> str:
    """Decode `data` as text. Raise UnreadableFile if `data` is too long or is not UTF-8 text."""
    if len(data) > MAX_FILE_BYTES:
        raise UnreadableFile("is larger than the limit of 1 MiB; shorten it")
    if (zero := data.find(0)) >= 0:
        raise UnreadableFile(
            f"has a NUL byte on line {data.count(10, 0, zero) + 1}, so it seems to be a binary file; use plain text"
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
    """Read at most one byte more than the limit, so that the caller can detect a file that is too long."""
    descriptor = os.open(real, _FLAGS)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(mode := os.fstat(descriptor).st_mode):
            raise UnreadableFile(f"is {_describe_file_kind(mode)}; use a regular file")
        return file.read(MAX_FILE_BYTES + 1)


def _describe_file_kind(mode: int) -> str:
    """Describe the type of a file that is not regular."""
    if stat.S_ISDIR(mode):
        return "a folder"
    if stat.S_ISFIFO(mode):
        return "a pipe"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"
