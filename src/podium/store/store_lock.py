"""Lock a store for tasks that only one process can do at a time, using a local file or a PostgreSQL lock."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

from anyio import sleep, to_thread

from ..system.file_lock import try_lock_descriptor
from ..system.owned_files import make_private_folder
from ..values.errors import StoreFailed
from ..values.store_address import StoreAddress, make_local_path
from .sql_connection import SqlConnection
from .store_connection import MOST_SECONDS, open_connection, translate_errors


@asynccontextmanager
async def hold_store_lock(store: StoreAddress, what: str, *, doing: str) -> AsyncIterator[None]:
    """Hold the lock named `what` until the block ends. The lock covers all processes and machines that use the store.

    Raise StoreFailed if another process holds the lock for too long. `doing` describes the work that the lock protects,
    for example `starting workers`; it is part of the error message.
    """
    if isinstance(store, Path):
        async with hold_lock(store, what, doing=doing):
            yield
        return
    connection = await to_thread.run_sync(partial(open_connection, store, create=True))
    try:
        await _acquire_advisory_lock(connection, store, what, doing)
        yield
    finally:
        # A connection that ends releases its locks, so nothing is left to do if this fails.
        with suppress(StoreFailed), translate_errors(store):
            connection.execute("SELECT pg_advisory_unlock(hashtextextended(?, 0))", (what,))
        connection.close()


async def _acquire_advisory_lock(connection: SqlConnection, store: StoreAddress, what: str, doing: str) -> None:
    def try_to_lock() -> bool:
        with translate_errors(store):
            query = "SELECT pg_try_advisory_lock(hashtextextended(?, 0))"
            return bool(connection.execute(query, (what,)).fetchone()[0])

    give_up = time.monotonic() + MOST_SECONDS
    while not await to_thread.run_sync(try_to_lock):
        if time.monotonic() > give_up:
            raise StoreFailed(
                f"another process that uses {store} has been {doing} for too long; end that process and try again"
            )
        await sleep(0.02)


@asynccontextmanager
async def hold_lock(store: StoreAddress, what: str, *, doing: str) -> AsyncIterator[int]:
    """Hold the lock named `what` on this machine until the block ends, and yield the descriptor of its file.

    Raise StoreFailed if another process holds the lock for too long. `doing` describes the work that the lock protects,
    for example `starting workers`; it is part of the error message.
    """
    name = make_local_path(store, f"{what}.lock")
    try:
        make_private_folder(name.parent)
        lock = os.open(name, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise StoreFailed(f"cannot open {name} ({error.strerror}); check its permissions") from error
    try:
        await _acquire_lock(lock, name, doing)
        yield lock
    finally:
        os.close(lock)


async def _acquire_lock(lock: int, name: Path, doing: str) -> None:
    give_up = time.monotonic() + MOST_SECONDS
    while True:
        if try_lock_descriptor(lock):
            return
        if time.monotonic() > give_up:
            raise StoreFailed(
                f"another process has been {doing} for too long and still holds the lock {name}; end that process and "
                "try again"
            )
        await sleep(0.02)
