"""A lock file, which one process at a time holds and which ends with that process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..values.errors import Mistake


@contextmanager
def hold_file_lock(lock: Path, *, protects: Path) -> Iterator[None]:
    """Hold `lock` until the block ends, so that nobody else changes the file `protects` meanwhile.

    Whoever reads a file, changes it and writes it back does all three in this block; otherwise two writers at once
    lose one of the changes. Raises Mistake where the lock cannot be opened.
    """
    try:
        lock.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(lock, os.O_CREAT | os.O_RDWR | getattr(os, "O_CLOEXEC", 0), 0o600)
    except OSError as error:
        raise Mistake(f"{protects} cannot be written: {error.strerror}; change its permissions") from error
    try:
        _lock_exclusively(handle)
        yield
    finally:
        os.close(handle)


def _lock_exclusively(handle: int) -> None:
    try:
        import fcntl  # Windows has no such module, and no such locks: there two writers at once may lose a change
    except ImportError:
        return
    fcntl.flock(handle, fcntl.LOCK_EX)
