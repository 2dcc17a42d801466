"""Decide how many times a failed model call is retried, and when."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from anyio import sleep

from ...values.errors import OutsideFailed


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Decides how many times a call is retried after a transient failure, and how long to wait before each retry."""

    max_retries: int = 5
    first_delay: float = 1.0
    longest_delay: float = 30.0
    jitter: Callable[[], float] = random.random
    sleep: Callable[[float], Awaitable[None]] = sleep

    def next_delay(self, attempt: int, error: OutsideFailed) -> float | None:
        """Return the seconds before the next attempt, or None for no retry. A provider's Retry-After is respected.

        A call that failed because the server sent nothing is retried only once, because every attempt takes minutes.
        """
        if not error.retryable or attempt > (1 if error.is_silent else self.max_retries):
            return None
        if error.retry_after is not None:
            return error.retry_after
        return min(self.first_delay * 2.0 ** (attempt - 1), self.longest_delay) * (0.5 + self.jitter() / 2)
