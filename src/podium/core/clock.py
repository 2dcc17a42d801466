"""The time limits of a run, which stand still while a person is waited for.

An agent is not late because somebody is thinking about its question: waiting for a person stops
every limit around the place that waits, and what is left of it goes on afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from time import monotonic

from anyio import CancelScope


class Limit:
    """One limit: the block that it cancels, and the moment at which it does."""

    __slots__ = ("_began", "_left", "_since", "_waiting", "scope", "waited")

    def __init__(self, deadline: float) -> None:
        self.scope = CancelScope(deadline=deadline)
        self.waited = 0.0
        """How long it has stood still so far."""
        self._began = monotonic()
        self._waiting = 0
        self._since = 0.0
        self._left = 0.0

    def until(self, deadline: float) -> None:
        """Move the moment, now or when the limit goes on."""
        if self._waiting:
            self._left = deadline - self._since
        else:
            self.scope.deadline = deadline

    def allow(self, seconds: float) -> None:
        """Let it last so long in all, without the time that it stood still."""
        self.until(self._began + self.waited + seconds)

    def stand_still(self) -> None:
        """Let no time pass until `go_on` was called as often."""
        if self._waiting == 0:
            self._since = monotonic()
            self._left = self.scope.deadline - self._since
            self.scope.deadline = inf
        self._waiting += 1

    def go_on(self) -> None:
        """Go on with the time that was left."""
        self._waiting -= 1
        if self._waiting == 0:
            now = monotonic()
            self.waited += now - self._since
            self.scope.deadline = now + self._left


class Clock:
    """The limits that hold now, by the place in the run's tree that they hold for."""

    def __init__(self) -> None:
        self._limits: dict[Limit, str] = {}

    @contextmanager
    def limit(self, place: str, seconds: float) -> Iterator[Limit]:
        """The block may take this long; where it took longer its `scope` has caught the cancellation."""
        limit = Limit(monotonic() + seconds)
        with self.watching(limit, place), limit.scope:
            yield limit

    @contextmanager
    def watching(self, limit: Limit, place: str) -> Iterator[None]:
        """A limit of the caller's own stands still, too, while this block is open."""
        self._limits[limit] = place
        try:
            yield
        finally:
            del self._limits[limit]

    @contextmanager
    def waiting(self, place: str) -> Iterator[None]:
        """Somebody at this place waits for a person."""
        around = [limit for limit, of in self._limits.items() if f"{place}/".startswith(f"{of}/")]
        for limit in around:
            limit.stand_still()
        try:
            yield
        finally:
            for limit in around:
                limit.go_on()
