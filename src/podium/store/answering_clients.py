"""Register and list clients, the processes that are ready to answer agents' requests.

Each client has an open wakeup socket while it is connected. The client ignores wakeups: the open socket only shows
that the client is connected. The next call to `list_clients` removes the sockets of processes that died. With a
PostgreSQL store, a lock in the database shows that a client is connected.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..values.store_address import StoreAddress
from .store_connection import translate_errors
from .wakeup import ensure_socket_folder, open_wakeup, send_wakeup


@contextmanager
def register_client(store: StoreAddress) -> Iterator[None]:
    """Register this process as a client until the block ends, and wake the owners of runs."""
    wakeup = open_wakeup(store, "client")
    try:
        send_wakeup(store, "owner")
        yield
    finally:
        wakeup.close()


def list_clients(store: StoreAddress) -> set[str]:
    """Return the names of the connected clients."""
    if isinstance(store, Path):
        send_wakeup(store, "client")
        return {path.name for path in ensure_socket_folder(store).glob("client-*")}
    from .postgres.notifications import list_connected_clients  # imported here for start-up time

    with translate_errors(store):
        return list_connected_clients(store)
