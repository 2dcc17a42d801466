"""Limit how long work can take, with timeouts that are paused while a run waits for a person.

The time a person takes to answer does not count against an agent. Waiting for a person pauses every
timeout that encloses the waiting scope; afterwards the timeouts continue with the remaining time.

If all agents of a run wait for a provider's limit to reset and nothing else is running, the process records when the
run should continue, and exits.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from time import monotonic

from anyio import CancelScope

CHECK_SECONDS = 30.0
"""How often a waiting agent checks the clock, which can jump, for example when a laptop wakes up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitWait:
    """A wait for a limit to reset: when it ends, in seconds since the epoch, and the reason."""

    until: float
    reason: str


@dataclass(slots=True)
class LimitWaits:
    """The agents of one run that are waiting for a limit to reset.

    `busy` counts the model calls and prompts that are not waiting.
    """

    busy: int = 0
    on_wait: Callable[[], object] = lambda: None
    """Called when an agent starts waiting."""
    _waiting: dict[str, LimitWait] = field(default_factory=dict)

    @property
    def next_wait(self) -> LimitWait | None:
        """The wait that ends first, or None if no agent is waiting for a limit to reset."""
        return min(self._waiting.values(), key=lambda one: one.until, default=None)

    @contextmanager
    def track_activity(self) -> Iterator[None]:
        """Count the time in this block as work, except while it waits for a limit to reset."""
        self.busy += 1
        try:
            yield
        finally:
            self.busy -= 1

    async def wait(self, place: str, wait: LimitWait, *, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Wait until the limit resets. Call this within `track_activity`; the time does not count as work."""
        self._waiting[place] = wait
        self.busy -= 1
        try:
            self.on_wait()
            left = wait.until - time.time()
            while left > 0:
                step = min(left, CHECK_SECONDS)
                await sleep(step)
                # The machine's clock includes time spent suspended; the sleep does not.
                left = min(left - step, wait.until - time.time())
        finally:
            self.busy += 1
            del self._waiting[place]


class PausableTimeout:
    """A timeout that can be paused: a cancel scope and its deadline."""

    __slots__ = ("_pause_count", "_paused_at", "_remaining", "_started_at", "paused_seconds", "scope")

    def __init__(self, deadline: float) -> None:
        self.scope = CancelScope(deadline=deadline)
        self.paused_seconds = 0.0
        """The total duration in seconds of all pauses that have ended."""
        self._started_at = monotonic()
        self._pause_count = 0
        self._paused_at = 0.0
        self._remaining = 0.0

    @property
    def active_seconds(self) -> float:
        """The time in seconds since the timeout started, excluding pauses."""
        return (self._paused_at if self._pause_count else monotonic()) - self._started_at - self.paused_seconds

    def move_deadline(self, deadline: float) -> None:
        """Set a new deadline; while paused, it takes effect on resume."""
        if self._pause_count:
            self._remaining = deadline - self._paused_at
        else:
            self.scope.deadline = deadline

    def set_duration(self, seconds: float) -> None:
        """Set the total duration, not counting the time spent paused."""
        self.move_deadline(self._started_at + self.paused_seconds + seconds)

    def pause(self) -> None:
        """Stop the clock until `resume` has been called once for each `pause`."""
        if self._pause_count == 0:
            self._paused_at = monotonic()
            self._remaining = self.scope.deadline - self._paused_at
            self.scope.deadline = inf
        self._pause_count += 1

    def resume(self) -> None:
        """Undo one call to `pause`. Once all are undone, the clock continues with the remaining time."""
        self._pause_count -= 1
        if self._pause_count == 0:
            now = monotonic()
            self.paused_seconds += now - self._paused_at
            self.scope.deadline = now + self._remaining


class RunTimeouts:
    """The active timeouts of a run, each with the scope path that it applies to."""

    def __init__(self) -> None:
        self.whole = PausableTimeout(inf)
        """The time limit for the whole work on the run. Cancelling its scope ends the work."""
        self._timeouts: dict[PausableTimeout, str] = {}

    @property
    def is_running(self) -> bool:
        """Whether the whole work is being timed, so that ending it now has an effect."""
        return self.whole in self._timeouts

    @contextmanager
    def apply_timeout(self, place: str, seconds: float) -> Iterator[PausableTimeout]:
        """Limit the block to `seconds`; if it takes longer, the timeout's `scope` catches the cancellation."""
        timeout = PausableTimeout(monotonic() + seconds)
        with self.track_timeout(timeout, place), timeout.scope:
            yield timeout

    def track_timeout(self, timeout: PausableTimeout, place: str) -> TrackedTimeout:
        """Return a context manager. While its block runs, `pause_timeouts` also pauses this timeout."""
        return TrackedTimeout(self._timeouts, timeout, place)

    @contextmanager
    def pause_timeouts(self, place: str) -> Iterator[None]:
        """Pause every timeout that encloses this scope while the block waits for a person."""
        enclosing = [limit for limit, of in self._timeouts.items() if f"{place}/".startswith(f"{of}/")]
        for limit in enclosing:
            limit.pause()
        try:
            yield
        finally:
            for limit in enclosing:
                limit.resume()


class TrackedTimeout:
    """A context manager that registers a timeout as active for the duration of its block."""

    __slots__ = ("_place", "_timeout", "_timeouts")

    def __init__(self, timeouts: dict[PausableTimeout, str], timeout: PausableTimeout, place: str) -> None:
        self._timeouts = timeouts
        self._timeout = timeout
        self._place = place

    def __enter__(self) -> None:
        self._timeouts[self._timeout] = self._place

    def __exit__(self, *_: object) -> None:
        del self._timeouts[self._timeout]
