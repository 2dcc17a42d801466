"""File locks, so that only one process at a time changes a file. A lock is also released when its process exits."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from ..values.errors import Mistake
from .owned_files import make_private_folder


@contextmanager
def hold_file_lock(lock: Path, *, protects: Path) -> Iterator[None]:
    """Hold `lock` until the block ends, so that no other process changes the file `protects`.

    Read the file, change it and write it back inside the block; otherwise one of two concurrent writers loses its
    change. Raise Mistake if the lock file cannot be opened.
    """
    try:
        make_private_folder(lock.parent)
        handle = os.open(lock, os.O_CREAT | os.O_RDWR | getattr(os, "O_CLOEXEC", 0), 0o600)
    except OSError as error:
        raise Mistake(f"{protects} cannot be written: {error.strerror}; check its folder's permissions") from error
    try:
        lock_descriptor(handle)
        yield
    finally:
        os.close(handle)


def lock_descriptor(handle: int) -> None:
    """Lock an open file for this process, waiting until no other process holds its lock."""
    try:
        import fcntl  # missing on Windows, which has no such locks: there, two concurrent writers may lose a change
    except ImportError:
        return
    fcntl.flock(handle, fcntl.LOCK_EX)


@asynccontextmanager
async def wait_file_lock(lock: Path) -> AsyncIterator[int]:
    """Wait until no other process holds `lock`, and hold it until the block ends. Yield its descriptor.

    Pass the descriptor to child processes that work under the lock: they keep the lock if this process is killed.
    """
    from anyio import sleep  # imported here because most users of locks need no event loop

    make_private_folder(lock.parent)
    handle = os.open(lock, os.O_CREAT | os.O_RDWR | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        while not try_lock_descriptor(handle):  # noqa: ASYNC110 - another process holds the lock and sends no event
            await sleep(0.02)
        yield handle
    finally:
        os.close(handle)


@contextmanager
def open_file_lock(lock: Path) -> Iterator[int | None]:
    """Hold `lock` until the block ends, and yield its descriptor; yield None if another process holds it."""
    make_private_folder(lock.parent)
    handle = os.open(lock, os.O_CREAT | os.O_RDWR | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        yield handle if try_lock_descriptor(handle) else None
    finally:
        os.close(handle)


def try_lock_descriptor(handle: int) -> bool:
    """Lock an open file for this process. Return False if another process holds its lock."""
    try:
        import fcntl  # missing on Windows
    except ImportError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
