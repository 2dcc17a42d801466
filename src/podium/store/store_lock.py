"""Lock a store for tasks that only one process can do at a time. Each lock is a file on this machine."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from anyio import sleep

from ..values.errors import StoreFailed
from ..values.store_address import StoreAddress, make_local_path
from .sql_connection import LOCK_SECONDS


@asynccontextmanager
async def hold_lock(store: StoreAddress, what: str, *, doing: str) -> AsyncIterator[int]:
    """Hold the lock `what` until the block ends, and yield its descriptor.

    Raise StoreFailed if another process holds it for too long; `doing` describes that process's work in the message.
    """
    name = make_local_path(store, f"{what}.lock")
    try:
        name.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(name, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise StoreFailed(f"cannot open {name} ({error.strerror}); check its permissions") from error
    try:
        await _acquire_lock(lock, name, doing)
        yield lock
    finally:
        os.close(lock)


async def _acquire_lock(lock: int, name: Path, doing: str) -> None:
    give_up = time.monotonic() + 20 * LOCK_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > give_up:
                raise StoreFailed(
                    f"another process has been {doing} for too long and still locks {name}; end that process"
                ) from None
            await sleep(0.02)
        else:
            return
