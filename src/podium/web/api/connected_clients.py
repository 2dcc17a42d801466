"""Register the browsers and programs that a person can use to answer requests.

A client is registered while it has a stream open. The tabs of a browser share one stream, so they count as one client.
If another tab continues the stream, or the stream is opened again for another run, the client stays the same, so the
deadlines of requests do not restart.
"""

from __future__ import annotations

from asyncio import TimerHandle, get_running_loop
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from ...store.answering_clients import register_client
from ...values.store_address import StoreAddress

GRACE_SECONDS = 3.0
"""How long a client stays registered after its stream has closed, to give it time to open another stream."""


class ConnectedClients:
    """The clients of one server. Connections with the same token count as one client."""

    def __init__(self, store: StoreAddress) -> None:
        self._store = store
        self._streams: Counter[str] = Counter()
        self._registered: dict[str, ExitStack] = {}
        self._removals: dict[str, TimerHandle] = {}

    @contextmanager
    def connect(self, token: str) -> Iterator[None]:
        """Register a client for the duration of the block and a short grace period.

        Blocks with the same token share one registration. It ends after the last of these blocks.
        """
        self._streams[token] += 1
        if token in self._removals:
            self._removals.pop(token).cancel()
        try:
            if token not in self._registered:
                registration = ExitStack()
                registration.enter_context(register_client(self._store))
                self._registered[token] = registration
            yield
        finally:
            self._streams[token] -= 1
            if not self._streams[token]:
                self._removals[token] = get_running_loop().call_later(GRACE_SECONDS, self._remove, token)

    def _remove(self, token: str) -> None:
        del self._removals[token], self._streams[token]
        if token in self._registered:
            self._registered.pop(token).close()

    def close(self) -> None:
        """Remove all clients."""
        while self._registered:
            self._registered.popitem()[1].close()
