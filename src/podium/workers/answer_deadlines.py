"""Deny a worker's request if nobody answers it in time.

Time counts only while a client is connected. While no client is connected, a request waits, for days if necessary.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from math import inf

from anyio import Event, move_on_after, sleep, to_thread

from ..core.open_requests import compute_seconds_left
from ..store.answering_clients import list_clients
from ..values.errors import StoreUnreachable
from ..values.store_address import StoreAddress

AWAY_SECONDS = 1.0
"""How long to wait before listing the clients again if the store's server cannot be reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRequest:
    """A request that is denied if nobody answers it in time.

    `allowed` returns how many seconds a person has to answer the request.
    """

    by: str
    asked: float
    allowed: Callable[[], float]
    deny: Callable[[float], Awaitable[None]]


class ApprovalDeadlines:
    """The deadlines of all requests from one store's workers."""

    def __init__(self, store: StoreAddress) -> None:
        self._store = store
        self._open: dict[str, PendingRequest] = {}
        self._clients_since: dict[str, float] = {}
        """When each connected client was first seen. The times are monotonic, because the system time can change."""
        self._changed = Event()

    def add_request(
        self, id: str, *, by: str, allowed: Callable[[], float], deny: Callable[[float], Awaitable[None]]
    ) -> None:
        """Add a request. `deny` is called at its deadline, and has no effect if the request has been answered."""
        self._open[id] = PendingRequest(by=by, asked=time.monotonic(), allowed=allowed, deny=deny)
        self.recheck()

    def discard_requests(self, by: str) -> None:
        """Discard the requests from a worker whose connection has closed."""
        self._open = {id: one for id, one in self._open.items() if one.by != by}

    @property
    def has_requests(self) -> bool:
        """Whether any requests are waiting for an answer."""
        return bool(self._open)

    def recheck(self) -> None:
        """Have `enforce_forever` check the connected clients and the deadlines again now."""
        self._changed.set()

    async def enforce_forever(self) -> None:
        """Enforce the deadlines until cancelled."""
        while True:
            self._changed = changed = Event()
            try:
                clients = await to_thread.run_sync(list_clients, self._store)
            except StoreUnreachable:
                await sleep(AWAY_SECONDS)
                continue
            now, left = time.monotonic(), inf
            self._clients_since = {one: self._clients_since.get(one, now) for one in clients}
            since = min(self._clients_since.values(), default=inf)
            for id, one in tuple(self._open.items()):
                seconds = one.allowed()
                remaining = compute_seconds_left(one.asked, seconds, watched_since=since, now=now)
                left = min(left, remaining) if remaining > 0 else left
                if remaining <= 0 and id in self._open:
                    del self._open[id]
                    await one.deny(seconds)
            with move_on_after(None if left == inf else left):
                await changed.wait()
