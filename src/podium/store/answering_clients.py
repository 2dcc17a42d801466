"""Register and list clients, the processes that are ready to answer agents' requests.

Each client has an open wakeup socket while it is connected. The client ignores wakeups: the open socket only shows
that the client is connected. The next call to `list_clients` removes the sockets of processes that died.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..values.store_address import StoreAddress
from .wakeup import WakeupSocket, ensure_socket_folder, send_wakeup


@contextmanager
def register_client(store: StoreAddress) -> Iterator[None]:
    """Register this process as a client until the block ends, and wake the owners of runs."""
    folder = ensure_socket_folder(store)
    wakeup = WakeupSocket(folder, "client")
    try:
        send_wakeup(folder, "owner")
        yield
    finally:
        wakeup.close()


def list_clients(store: StoreAddress) -> set[str]:
    """Return the names of the connected clients."""
    folder = ensure_socket_folder(store)
    send_wakeup(folder, "client")
    return {path.name for path in folder.glob("client-*")}
