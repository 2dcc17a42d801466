"""Pace: how often something may begin within a minute. Whoever comes too often waits."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable, Callable

from anyio import sleep

MINUTE = 60.0


class Pace:
    """At most so many beginnings in any minute."""

    def __init__(
        self,
        most: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = sleep,
    ) -> None:
        self._most = most
        self._clock = clock
        self._sleep = sleep
        self._begun: deque[float] = deque(maxlen=most)

    async def begin(self) -> None:
        """Return when one more may begin."""
        while len(self._begun) == self._most and (wait := self._begun[0] + MINUTE - self._clock()) > 0:
            await self._sleep(wait)
        self._begun.append(self._clock())
