"""Limit how many tool calls can start per minute. Calls above the limit wait."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable

from anyio import sleep

MINUTE = 60.0


class RateLimit:
    """Allows at most `per_minute` starts within any 60 seconds."""

    def __init__(
        self,
        per_minute: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = sleep,
    ) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._sleep = sleep
        self._start_times: deque[float] = deque(maxlen=per_minute)

    async def acquire(self) -> None:
        """Wait until another start is allowed."""
        while (
            len(self._start_times) == self._per_minute and (wait := self._start_times[0] + MINUTE - self._clock()) > 0
        ):
            await self._sleep(wait)
        self._start_times.append(self._clock())
