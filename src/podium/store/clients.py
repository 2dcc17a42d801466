"""Clients: who is there to answer what agents ask, in whatever process.

Each hangs up a bell for as long as it is there, which nobody needs to ring: that it hangs says enough. One that
died is found out and taken down by whoever looks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path

from .bell import Bell, bell_folder, ring_once


@contextmanager
def present(store: Path) -> Iterator[None]:
    """Be there to answer until the block ends."""
    folder = bell_folder(store)
    bell = Bell(folder, "client")
    try:
        ring_once(folder, "owner")
        yield
    finally:
        bell.close()


def connected_since(store: Path) -> float:
    """When the first of those came who are there now; infinity where nobody is."""
    folder = bell_folder(store)
    ring_once(folder, "client")
    since = inf
    for path in folder.glob("client-*"):
        with suppress(FileNotFoundError):
            since = min(since, path.lstat().st_ctime)
    return since
