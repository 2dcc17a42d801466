"""Clients: who is there to answer what agents ask, in whatever process.

Each hangs up a bell for as long as it is there, which nobody needs to ring: that it hangs says enough. One that
died is found out and taken down by whoever looks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .wakeup import Bell, bell_folder, ring_once


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


def connected(store: Path) -> set[str]:
    """Who is there now, each by a name of its own."""
    folder = bell_folder(store)
    ring_once(folder, "client")
    return {path.name for path in folder.glob("client-*")}
