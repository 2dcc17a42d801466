"""Clients: who is there to answer what agents ask, in whatever process.

Each hangs up a bell for as long as it is there, which nobody needs to ring: that it hangs says enough. One that
died is found out and taken down by whoever looks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .wakeup import WakeupSocket, ensure_socket_folder, send_wakeup


@contextmanager
def register_client(store: Path) -> Iterator[None]:
    """Be there to answer until the block ends."""
    folder = ensure_socket_folder(store)
    wakeup = WakeupSocket(folder, "client")
    try:
        send_wakeup(folder, "owner")
        yield
    finally:
        wakeup.close()


def list_clients(store: Path) -> set[str]:
    """Who is there now, each by a name of its own."""
    folder = ensure_socket_folder(store)
    send_wakeup(folder, "client")
    return {path.name for path in folder.glob("client-*")}
