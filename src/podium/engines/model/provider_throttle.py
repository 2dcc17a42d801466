"""Throttle calls to a provider: enforce rate limits, queue calls, and back off while the provider fails.

There is one throttle for each server address or local model, shared by all agents of an app. It
enforces the configured limits. During an outage it sends a single probe instead of a hundred calls.
The caller retries failed calls.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import NamedTuple

from anyio import CancelScope, Event, sleep

from ...values.errors import Mistake, OutsideFailed

WINDOW = 60.0
FIRST_HOLD = 1.0
LONGEST_HOLD = 30.0
LONGEST_LIMIT = 31 * 86_400.0
"""The longest wait, in seconds, that a provider can request. A longer wait is ignored, and the call fails."""
FAILURES_BEFORE_HOLD = 2
QUEUE_NOTICE_SECONDS = 5.0
"""How long a call waits for other calls before the wait is reported."""

OnWait = Callable[[int], None]
"""Called with the number of calls ahead of a waiting call: those in flight, and those before it in the queue."""

ReserveCall = Callable[[], Awaitable[float]]
"""Reserves a call under a rate limit shared by several processes. Returns the seconds until the call may start."""


class ModelLimit(NamedTuple):
    """The time from which a provider accepts calls to a model again (in seconds since 1970), and the error message."""

    until: float
    message: str


NO_LIMIT = ModelLimit(0.0, "")


class ProviderThrottle:
    """The throttle for the calls to one provider. Calls start in order of arrival.

    - Limits: the calls that start in any one-minute window do not exceed the limits on calls and
      tokens per minute, and at most `concurrent` calls run at once. A call with more tokens than the
      limit per minute starts when the whole quota is available.
    - Before a call enters the queue, it waits for the time that `reserve_call` returns.
    - If the provider sends Retry-After, all calls wait for that time.
    - Any other transient failure, such as 500 or a refused connection, does not delay other calls if it
      is the only one. After two in a row without a success, all calls wait, and one call at a time is
      sent as a probe: first after one second, then with a delay that doubles each time, up to half a
      minute. If the probe succeeds, all calls proceed; if it fails, they keep waiting.
    - A permanent failure, such as 400 or 401, does not delay other calls.

    All state changes happen in one event loop without awaiting, so there is no lock.
    """

    def __init__(
        self,
        *,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        concurrent: int | None = None,
        notice_seconds: float = QUEUE_NOTICE_SECONDS,
        reserve_call: ReserveCall | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._requests = (
            None if requests_per_minute is None else _MinuteQuota("requests_per_minute", requests_per_minute)
        )
        self._tokens = None if tokens_per_minute is None else _MinuteQuota("tokens_per_minute", tokens_per_minute)
        self._concurrent = math.inf if concurrent is None else _require_positive("concurrent", concurrent)
        self._notice_seconds = notice_seconds
        self._reserve_call = reserve_call
        self._clock = clock
        self._sleep = sleep
        self._jitter = jitter
        self._in_flight = 0
        self._waiting: deque[CallSlot] = deque()
        self._held_until = -math.inf
        self._failures = 0
        """Transient failures since the last success. While calls are held back, only failed probes count."""
        self._probe: CallSlot | None = None
        self._limits: dict[str, ModelLimit] = {}

    def record_limit(self, model: str, limit: ModelLimit) -> None:
        """Record that a model has reached a limit that will not reset soon. Until it resets, calls fail at once."""
        self._limits[model] = limit
        self._probe = None
        self._wake_first()

    def find_limit(self, model: str) -> ModelLimit:
        """Return the last limit recorded for a model, which may already have reset."""
        return self._limits.get(model, NO_LIMIT)

    def clear_limit(self, model: str) -> None:
        """Allow calls to a model again, after waiting for its limit to reset."""
        self._limits.pop(model, None)

    def estimate_delay(self, tokens: int) -> float:
        """Return how many seconds a call of `tokens` tokens must wait now, or infinity if it waits for other calls."""
        return math.inf if self._waiting else self._seconds_until_ready(tokens)

    def reserve_slot(self, tokens: int, on_wait: OnWait | None = None) -> CallSlot:
        """Return the slot for a call of about `tokens` tokens: a context manager that waits until the call can start.

        Record the outcome of the call inside the `async with` block. `on_wait` is called if, after a few seconds,
        the call is still waiting and the maximum number of calls is in flight.
        """
        return CallSlot(self, tokens, on_wait)

    def record_success(self) -> None:
        """Record that a call succeeded. A call counts as successful when the first part of its reply arrives."""
        if not self._failures:
            return
        if self._is_probing:
            self._held_until = -math.inf
        self._failures = 0
        self._probe = None
        self._wake_first()

    def record_failure(self, error: OutsideFailed) -> None:
        """Record that a call failed."""
        if not error.retryable:
            if error.status is not None:
                # A provider that rejects a call is reachable.
                self.record_success()
            return
        now, requested = self._clock(), error.retry_after or 0.0
        if 0.0 < requested <= LONGEST_LIMIT:
            self._held_until = max(self._held_until, now + requested)
        elif not self._is_probing or self._probe is not None:
            # While calls are held back, a failure counts only if there is a probe. Without a probe, the failed call
            # started before the calls were held back, so its failure adds no information.
            self._failures += 1
            if self._is_probing:
                self._held_until = max(self._held_until, now + self._compute_backoff())
        self._probe = None
        self._wake_first()

    @property
    def _is_probing(self) -> bool:
        return self._failures >= FAILURES_BEFORE_HOLD

    def _compute_backoff(self) -> float:
        # The exponent is limited, because a provider may be down for days.
        longest = min(FIRST_HOLD * 2.0 ** min(self._failures - FAILURES_BEFORE_HOLD, 16), LONGEST_HOLD)
        return longest * (0.5 + self._jitter() / 2)

    # The queue

    def _seconds_until_ready(self, tokens: int) -> float:
        """Return the seconds until the first queued call can start, or infinity if it waits for other calls."""
        if self._probe is not None or self._in_flight >= self._concurrent:
            return math.inf
        now = self._clock()
        wait = max(self._held_until - now, 0.0)
        if self._requests is not None:
            wait = max(wait, self._requests.seconds_until_available(1, now))
        if self._tokens is not None:
            wait = max(wait, self._tokens.seconds_until_available(tokens, now))
        return wait

    async def _wait_in_queue(self, slot: CallSlot) -> None:
        """Wait until the slot is first in the queue and can start."""
        self._waiting.append(slot)
        # A timer, because a task for every waiting call would need a task group that outlives the caller's block.
        notice = asyncio.get_running_loop().call_later(self._notice_seconds, self._report_queue, slot)
        try:
            while wait := self._seconds_until_ready(slot.tokens) if self._waiting[0] is slot else math.inf:
                await self._sleep_until_woken(slot, wait)
        finally:
            notice.cancel()
            self._waiting.remove(slot)
            self._wake_first()

    def _report_queue(self, slot: CallSlot) -> None:
        if slot.on_wait is not None and self._in_flight >= self._concurrent:
            slot.on_wait(self._in_flight + self._waiting.index(slot))

    async def _sleep_until_woken(self, slot: CallSlot, wait: float) -> None:
        """Wait for `wait` seconds or until the slot is woken."""
        if wait == math.inf:
            # Waiting without a time limit is the common case, and an event is several times as fast as a cancel scope.
            wakeup = Event()
            slot.wake = wakeup.set
            await wakeup.wait()
        else:
            with CancelScope() as sleep_scope:
                slot.wake = sleep_scope.cancel
                await self._sleep(wait)

    def _start_call(self, slot: CallSlot) -> None:
        self._in_flight += 1
        if self._is_probing:
            self._probe = slot
        if self._requests is not None:
            self._requests.take(1, self._clock())
        if self._tokens is not None:
            slot.quota_use = self._tokens.take(slot.tokens, self._clock())

    def _finish_call(self, slot: CallSlot) -> None:
        self._in_flight -= 1
        if self._probe is slot:
            # The probe ended without an outcome, so the next call in the queue becomes the probe.
            self._probe = None
        self._wake_first()

    def _wake_first(self) -> None:
        """Wake the first call in the queue to check again whether it can start."""
        if self._waiting and (wake := self._waiting[0].wake) is not None:
            wake()


class CallSlot:
    """The slot for one call: a context manager that acquires the slot on entry and releases it on exit."""

    __slots__ = ("_throttle", "on_wait", "quota_use", "tokens", "wake")

    def __init__(self, throttle: ProviderThrottle, tokens: int, on_wait: OnWait | None) -> None:
        self._throttle = throttle
        self.tokens = tokens
        self.on_wait = on_wait
        self.wake: Callable[[], None] | None = None
        self.quota_use: _QuotaUse | None = None

    def record_tokens(self, actual: int) -> None:
        """Record how many tokens the call actually used."""
        tokens = self._throttle._tokens
        if tokens is not None and actual != self.tokens:
            tokens.adjust_use(self.quota_use, actual - self.tokens, self._throttle._clock())
            self._throttle._wake_first()

    async def __aenter__(self) -> CallSlot:
        throttle = self._throttle
        if throttle._reserve_call is not None and (wait := await throttle._reserve_call()):
            await throttle._sleep(wait)
        if throttle._waiting or throttle._seconds_until_ready(self.tokens):
            await throttle._wait_in_queue(self)
        throttle._start_call(self)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._throttle._finish_call(self)


class _QuotaUse:
    """The amount that one call has taken from a quota, and the time when that amount is available again."""

    __slots__ = ("amount", "returns_at")

    def __init__(self, returns_at: float, amount: int) -> None:
        self.returns_at = returns_at
        self.amount = amount


class _MinuteQuota:
    """A quota per minute with a sliding window: the amount that a call takes is available again one minute later.

    A token bucket would allow twice as much in the minute after an idle period, and providers that
    count by the minute would reject the second half.
    """

    def __init__(self, name: str, limit: int) -> None:
        self._limit = _require_positive(name, limit)
        self._left = self._limit
        self._uses: deque[_QuotaUse] = deque()
        """The amounts that calls have taken from the quota, in the order in which they become available again."""

    def seconds_until_available(self, amount: int, now: float) -> float:
        """Return the seconds until `amount` is available.

        If `amount` exceeds the limit, return the seconds until the whole quota is available.
        """
        self._release_expired(now)
        missing = min(amount, self._limit) - self._left
        if missing <= 0:
            return 0.0
        for use in self._uses:
            missing -= use.amount
            if missing <= 0:
                return use.returns_at - now
        raise AssertionError("unreachable: the whole quota is available once all uses have expired")

    def take(self, amount: int, now: float) -> _QuotaUse:
        """Take `amount` from the quota, even if less is available."""
        use = _QuotaUse(now + WINDOW, amount)
        self._left -= amount
        self._uses.append(use)
        return use

    def adjust_use(self, use: _QuotaUse | None, more: int, now: float) -> None:
        """Change the amount that a call has taken from the quota by `more`. `use` is what the call took at its start.

        If `more` is positive, this amount is taken as well. If it is negative, this amount is returned to the quota,
        unless `use` has expired.
        """
        self._release_expired(now)
        if more > 0:
            self.take(more, now)
        elif use is not None and use.returns_at > now:
            returned = min(use.amount, -more)
            self._left += returned
            use.amount -= returned

    def _release_expired(self, now: float) -> None:
        while self._uses and self._uses[0].returns_at <= now:
            self._left += self._uses.popleft().amount


def _require_positive(name: str, limit: int) -> int:
    if limit < 1:
        raise Mistake(f"{name} must be at least 1, got {limit}; omit it for no limit")
    return limit
