"""The traffic to one provider: whose turn it is, and what all do when the provider is in trouble.

There is one Traffic for each provider's address, shared by all agents of a process. It keeps the
limits of the account, and lets one call find out whether a provider is back, not a hundred. Trying
a call again belongs to whoever makes it.
"""

from __future__ import annotations

import math
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType

from anyio import CancelScope, Event, sleep

from ...values.errors import Mistake, OutsideFailed

WINDOW = 60.0
FIRST_HOLD = 1.0
LONGEST_HOLD = 30.0
FAILURES_BEFORE_HOLD = 2


class ProviderThrottle:
    """The calls to one provider, let through in the order in which they came.

    - The limits: in no minute, wherever it begins, do more calls or tokens begin than allowed; and
      no more than `concurrent` calls are under way at once. A call of more tokens than a minute
      has goes ahead when no other has used any.
    - A provider that says when to come back (Retry-After) is left alone by everybody until then.
    - Other failures that may pass, such as 500 or a refused connection, hold nobody when they come
      alone. After two without a success between them everybody waits: one call at a time goes
      ahead as the probe, first after a second, then after twice as long, up to half a minute. Its
      success lets all others go, its failure holds them again.
    - A failure that lasts, such as 400 or 401, holds nobody.

    The state is changed only between two awaits of one event loop, so there is no lock.
    """

    def __init__(
        self,
        *,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        concurrent: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._requests = (
            None if requests_per_minute is None else _MinuteQuota("requests_per_minute", requests_per_minute)
        )
        self._tokens = None if tokens_per_minute is None else _MinuteQuota("tokens_per_minute", tokens_per_minute)
        self._concurrent = math.inf if concurrent is None else _require_positive("concurrent", concurrent)
        self._clock = clock
        self._sleep = sleep
        self._jitter = jitter
        self._in_flight = 0
        self._waiting: deque[CallSlot] = deque()
        self._held_until = -math.inf
        self._failures = 0
        """Failures that may pass, since the last success; once all are held only those of probes count."""
        self._probe: CallSlot | None = None

    def estimate_delay(self, tokens: int) -> float:
        """Seconds that a call of about so many tokens would wait now; infinite where that hangs on other calls."""
        return math.inf if self._waiting else self._seconds_until_ready(tokens)

    def reserve_slot(self, tokens: int) -> CallSlot:
        """A call of about so many tokens: `async with` waits for its turn. What came of it is told inside the block."""
        return CallSlot(self, tokens)

    def record_success(self) -> None:
        """Say that a call succeeded; that the reply has begun is enough."""
        if not self._failures:
            return
        if self._is_probing:
            self._held_until = -math.inf
        self._failures = 0
        self._probe = None
        self._wake_first()

    def record_failure(self, error: OutsideFailed) -> None:
        """Say that a call failed."""
        if not error.retryable:
            if error.status is not None:
                # Whoever says no is there.
                self.record_success()
            return
        now = self._clock()
        if error.retry_after:
            self._held_until = max(self._held_until, now + error.retry_after)
        elif not self._is_probing or self._probe is not None:
            # Else it is a call from before the hold, which says nothing new.
            self._failures += 1
            if self._is_probing:
                self._held_until = max(self._held_until, now + self._compute_backoff())
        self._probe = None
        self._wake_first()

    @property
    def _is_probing(self) -> bool:
        return self._failures >= FAILURES_BEFORE_HOLD

    def _compute_backoff(self) -> float:
        # The exponent is limited, as a provider may be away for days.
        longest = min(FIRST_HOLD * 2.0 ** min(self._failures - FAILURES_BEFORE_HOLD, 16), LONGEST_HOLD)
        return longest * (0.5 + self._jitter() / 2)

    # Turns

    def _seconds_until_ready(self, tokens: int) -> float:
        """Seconds until the first in line may go; infinite where it will be told."""
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
        """Wait until it is the first in line and may go."""
        self._waiting.append(slot)
        try:
            while wait := self._seconds_until_ready(slot.tokens) if self._waiting[0] is slot else math.inf:
                await self._sleep_until_woken(slot, wait)
        finally:
            self._waiting.remove(slot)
            self._wake_first()

    async def _sleep_until_woken(self, slot: CallSlot, wait: float) -> None:
        """Wait for so long, or until it is stirred."""
        if wait == math.inf:
            # The usual wait; a scope costs several times as much.
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
            # It never learnt whether the provider is back; the next in line finds out.
            self._probe = None
        self._wake_first()

    def _wake_first(self) -> None:
        """Let the first in line look again whether it may go."""
        if self._waiting and (wake := self._waiting[0].wake) is not None:
            wake()


class CallSlot:
    """One call's turn: taken when the block is entered, given back when it is left."""

    __slots__ = ("_throttle", "quota_use", "tokens", "wake")

    def __init__(self, throttle: ProviderThrottle, tokens: int) -> None:
        self._throttle = throttle
        self.tokens = tokens
        self.wake: Callable[[], None] | None = None
        self.quota_use: _QuotaUse | None = None

    def record_tokens(self, actual: int) -> None:
        """Say how many tokens the call really took."""
        tokens = self._throttle._tokens
        if tokens is not None and actual != self.tokens:
            tokens.adjust_use(self.quota_use, actual - self.tokens, self._throttle._clock())
            self._throttle._wake_first()

    async def __aenter__(self) -> CallSlot:
        throttle = self._throttle
        if throttle._waiting or throttle._seconds_until_ready(self.tokens):
            await throttle._wait_in_queue(self)
        throttle._start_call(self)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._throttle._finish_call(self)


class _QuotaUse:
    """What one call has taken, and when it flows back."""

    __slots__ = ("amount", "returns_at")

    def __init__(self, returns_at: float, amount: int) -> None:
        self.returns_at = returns_at
        self.amount = amount


class _MinuteQuota:
    """So much a minute. What is taken flows back exactly a minute later.

    A bucket that fills evenly would give twice as much in the minute after a quiet time, and
    providers that count by the minute refuse the second half.
    """

    def __init__(self, name: str, limit: int) -> None:
        self._limit = _require_positive(name, limit)
        self._left = self._limit
        self._uses: deque[_QuotaUse] = deque()
        """What flows back, in order."""

    def seconds_until_available(self, amount: int, now: float) -> float:
        """Seconds until so much is there; for more than there ever is, until all is."""
        self._release_expired(now)
        missing = min(amount, self._limit) - self._left
        if missing <= 0:
            return 0.0
        for use in self._uses:
            missing -= use.amount
            if missing <= 0:
                return use.returns_at - now
        raise AssertionError("what is missing was taken")

    def take(self, amount: int, now: float) -> _QuotaUse:
        """Take so much, also when it is not there."""
        use = _QuotaUse(now + WINDOW, amount)
        self._left -= amount
        self._uses.append(use)
        return use

    def adjust_use(self, use: _QuotaUse | None, more: int, now: float) -> None:
        """Take more than was taken; or give back what was too much, unless it has flowed back already."""
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
        raise Mistake(f"{name} is {limit}, with which no call would ever be made; leave it out where there is no limit")
    return limit
