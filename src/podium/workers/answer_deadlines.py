"""Deadlines for answers: what a worker asks is denied when somebody was there long enough and has not answered.

Time counts only while a client is connected. With nobody there a request waits, for days if need be.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path

from anyio import Event, move_on_after, to_thread

from ..store.clients import list_clients
from .wire.line_socket import ConnectionClosed


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRequest:
    """What somebody has asked and is to be denied in time; `allowed` tells how many seconds there are."""

    by: str
    asked: float
    allowed: Callable[[], float]
    deny: Callable[[float], Awaitable[None]]


class ApprovalDeadlines:
    """The deadlines of all requests of one store's workers."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._open: dict[str, PendingRequest] = {}
        self._clients_since: dict[str, float] = {}
        """Who is there, and since when; the wall's clock may be set to any time meanwhile."""
        self._changed = Event()

    def add_request(
        self, id: str, *, by: str, allowed: Callable[[], float], deny: Callable[[float], Awaitable[None]]
    ) -> None:
        """Deny a request in time. Where it has an answer by then, a late no is none: the first one counts."""
        self._open[id] = PendingRequest(by=by, asked=time.monotonic(), allowed=allowed, deny=deny)
        self.recheck()

    def discard_requests(self, by: str) -> None:
        """Let go of all that somebody asked who is not there to hear an answer any more."""
        self._open = {id: one for id, one in self._open.items() if one.by != by}

    def recheck(self) -> None:
        """Somebody may have come."""
        self._changed.set()

    async def enforce_forever(self) -> None:
        """Keep them, for ever."""
        while True:
            self._changed = changed = Event()
            clients = await to_thread.run_sync(list_clients, self._store)
            now, left = time.monotonic(), inf
            self._clients_since = {one: self._clients_since.get(one, now) for one in clients}
            since = min(self._clients_since.values(), default=inf)
            for id, one in tuple(self._open.items()):
                seconds = one.allowed()
                remaining = max(one.asked, since) + seconds - now
                left = min(left, remaining) if remaining > 0 else left
                if remaining <= 0 and id in self._open:
                    del self._open[id]
                    with suppress(ConnectionClosed):
                        await one.deny(seconds)
            with move_on_after(None if left == inf else left):
                await changed.wait()
