"""A promise: the keys for a run will come, and somebody is there who brings them.

Whoever hires makes it before the run can be seen, and leaves it to the process that it starts as a commander. That
one keeps it by being the commander, or by bringing the keys to whoever is. It is a lock of the system's: it ends with
the last who holds it, however that ends, and then nobody waits for the keys any more.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ..store.wakeup import ensure_socket_folder


class KeyDelivery(NamedTuple):
    """A run whose keys are promised, and the open lock, which can be left to another process as its standard input."""

    run: str
    descriptor: int


@contextmanager
def announce_keys(store: Path, run: str = "") -> Iterator[KeyDelivery]:
    """Promise the keys for a run, which may be one that is still to begin, for as long as the block lasts."""
    run = run or secrets.token_hex(6)
    path = _delivery_lock_path(store, run)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield KeyDelivery(run, descriptor)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def is_delivery_pending(store: Path, run: str) -> bool:
    """Whether somebody will bring the keys for a run."""
    path = _delivery_lock_path(store, run)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        path.unlink(missing_ok=True)
        return False
    finally:
        os.close(descriptor)


def finish_delivery(store: Path, run: str) -> None:
    """Be done with the promise that was left to this process."""
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    _delivery_lock_path(store, run).unlink(missing_ok=True)


def _delivery_lock_path(store: Path, run: str) -> Path:
    return ensure_socket_folder(store) / f"keys-{run}"
