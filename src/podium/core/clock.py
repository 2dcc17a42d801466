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


class PausableTimeout:
    """One limit: the block that it cancels, and the moment at which it does."""

    __slots__ = ("_pause_count", "_paused_at", "_remaining", "_started_at", "paused_seconds", "scope")

    def __init__(self, deadline: float) -> None:
        self.scope = CancelScope(deadline=deadline)
        self.paused_seconds = 0.0
        """How long it has stood still so far."""
        self._started_at = monotonic()
        self._pause_count = 0
        self._paused_at = 0.0
        self._remaining = 0.0

    def move_deadline(self, deadline: float) -> None:
        """Move the moment, now or when the limit goes on."""
        if self._pause_count:
            self._remaining = deadline - self._paused_at
        else:
            self.scope.deadline = deadline

    def set_duration(self, seconds: float) -> None:
        """Let it last so long in all, without the time that it stood still."""
        self.move_deadline(self._started_at + self.paused_seconds + seconds)

    def pause(self) -> None:
        """Let no time pass until `go_on` was called as often."""
        if self._pause_count == 0:
            self._paused_at = monotonic()
            self._remaining = self.scope.deadline - self._paused_at
            self.scope.deadline = inf
        self._pause_count += 1

    def resume(self) -> None:
        """Go on with the time that was left."""
        self._pause_count -= 1
        if self._pause_count == 0:
            now = monotonic()
            self.paused_seconds += now - self._paused_at
            self.scope.deadline = now + self._remaining


class RunTimeouts:
    """The limits that hold now, by the place in the run's tree that they hold for."""

    def __init__(self) -> None:
        self._timeouts: dict[PausableTimeout, str] = {}

    @contextmanager
    def apply_timeout(self, place: str, seconds: float) -> Iterator[PausableTimeout]:
        """The block may take this long; where it took longer its `scope` has caught the cancellation."""
        timeout = PausableTimeout(monotonic() + seconds)
        with self.track_timeout(timeout, place), timeout.scope:
            yield timeout

    @contextmanager
    def track_timeout(self, timeout: PausableTimeout, place: str) -> Iterator[None]:
        """A limit of the caller's own stands still, too, while this block is open."""
        self._timeouts[timeout] = place
        try:
            yield
        finally:
            del self._timeouts[timeout]

    @contextmanager
    def pause_timeouts(self, place: str) -> Iterator[None]:
        """Somebody at this place waits for a person."""
        enclosing = [limit for limit, of in self._timeouts.items() if f"{place}/".startswith(f"{of}/")]
        for limit in enclosing:
            limit.pause()
        try:
            yield
        finally:
            for limit in enclosing:
                limit.resume()
