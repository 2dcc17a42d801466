"""Track which agents of a run are waiting for a provider's limit to reset, and whether anything else is running.

If nothing else is running, the process records when the run should continue, and exits.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

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
