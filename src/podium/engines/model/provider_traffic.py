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


class Traffic:
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
        self._requests = None if requests_per_minute is None else _Allowance("requests_per_minute", requests_per_minute)
        self._tokens = None if tokens_per_minute is None else _Allowance("tokens_per_minute", tokens_per_minute)
        self._concurrent = math.inf if concurrent is None else _positive("concurrent", concurrent)
        self._clock = clock
        self._sleep = sleep
        self._jitter = jitter
        self._under_way = 0
        self._waiting: deque[Turn] = deque()
        self._held_until = -math.inf
        self._failures = 0
        """Failures that may pass, since the last success; once all are held only those of probes count."""
        self._probe: Turn | None = None

    def delay(self, tokens: int) -> float:
        """Seconds that a call of about so many tokens would wait now; infinite where that hangs on other calls."""
        return math.inf if self._waiting else self._wait(tokens)

    def call(self, tokens: int) -> Turn:
        """A call of about so many tokens: `async with` waits for its turn. What came of it is told inside the block."""
        return Turn(self, tokens)

    def fine(self) -> None:
        """Say that a call succeeded; that the reply has begun is enough."""
        if not self._failures:
            return
        if self._is_probing:
            self._held_until = -math.inf
        self._failures = 0
        self._probe = None
        self._stir()

    def trouble(self, error: OutsideFailed) -> None:
        """Say that a call failed."""
        if not error.retryable:
            if error.status is not None:
                # Whoever says no is there.
                self.fine()
            return
        now = self._clock()
        if error.retry_after:
            self._held_until = max(self._held_until, now + error.retry_after)
        elif not self._is_probing or self._probe is not None:
            # Else it is a call from before the hold, which says nothing new.
            self._failures += 1
            if self._is_probing:
                self._held_until = max(self._held_until, now + self._back_off())
        self._probe = None
        self._stir()

    @property
    def _is_probing(self) -> bool:
        return self._failures >= FAILURES_BEFORE_HOLD

    def _back_off(self) -> float:
        # The exponent is limited, as a provider may be away for days.
        longest = min(FIRST_HOLD * 2.0 ** min(self._failures - FAILURES_BEFORE_HOLD, 16), LONGEST_HOLD)
        return longest * (0.5 + self._jitter() / 2)

    # Turns

    def _wait(self, tokens: int) -> float:
        """Seconds until the first in line may go; infinite where it will be told."""
        if self._probe is not None or self._under_way >= self._concurrent:
            return math.inf
        now = self._clock()
        wait = max(self._held_until - now, 0.0)
        if self._requests is not None:
            wait = max(wait, self._requests.wait(1, now))
        if self._tokens is not None:
            wait = max(wait, self._tokens.wait(tokens, now))
        return wait

    async def _queue(self, turn: Turn) -> None:
        """Wait until it is the first in line and may go."""
        self._waiting.append(turn)
        try:
            while wait := self._wait(turn.tokens) if self._waiting[0] is turn else math.inf:
                await self._nap(turn, wait)
        finally:
            self._waiting.remove(turn)
            self._stir()

    async def _nap(self, turn: Turn, wait: float) -> None:
        """Wait for so long, or until it is stirred."""
        if wait == math.inf:
            # The usual wait; a scope costs several times as much.
            bell = Event()
            turn.stir = bell.set
            await bell.wait()
        else:
            with CancelScope() as nap:
                turn.stir = nap.cancel
                await self._sleep(wait)

    def _begin(self, turn: Turn) -> None:
        self._under_way += 1
        if self._is_probing:
            self._probe = turn
        if self._requests is not None:
            self._requests.take(1, self._clock())
        if self._tokens is not None:
            turn.taken = self._tokens.take(turn.tokens, self._clock())

    def _end(self, turn: Turn) -> None:
        self._under_way -= 1
        if self._probe is turn:
            # It never learnt whether the provider is back; the next in line finds out.
            self._probe = None
        self._stir()

    def _stir(self) -> None:
        """Let the first in line look again whether it may go."""
        if self._waiting and (stir := self._waiting[0].stir) is not None:
            stir()


class Turn:
    """One call's turn: taken when the block is entered, given back when it is left."""

    __slots__ = ("_traffic", "stir", "taken", "tokens")

    def __init__(self, traffic: Traffic, tokens: int) -> None:
        self._traffic = traffic
        self.tokens = tokens
        self.stir: Callable[[], None] | None = None
        self.taken: _Taken | None = None

    def settle(self, actual: int) -> None:
        """Say how many tokens the call really took."""
        tokens = self._traffic._tokens
        if tokens is not None and actual != self.tokens:
            tokens.correct(self.taken, actual - self.tokens, self._traffic._clock())
            self._traffic._stir()

    async def __aenter__(self) -> Turn:
        traffic = self._traffic
        if traffic._waiting or traffic._wait(self.tokens):
            await traffic._queue(self)
        traffic._begin(self)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._traffic._end(self)


class _Taken:
    """What one call has taken, and when it flows back."""

    __slots__ = ("amount", "back")

    def __init__(self, back: float, amount: int) -> None:
        self.back = back
        self.amount = amount


class _Allowance:
    """So much a minute. What is taken flows back exactly a minute later.

    A bucket that fills evenly would give twice as much in the minute after a quiet time, and
    providers that count by the minute refuse the second half.
    """

    def __init__(self, name: str, limit: int) -> None:
        self._limit = _positive(name, limit)
        self._left = self._limit
        self._taken: deque[_Taken] = deque()
        """What flows back, in order."""

    def wait(self, amount: int, now: float) -> float:
        """Seconds until so much is there; for more than there ever is, until all is."""
        self._refill(now)
        missing = min(amount, self._limit) - self._left
        if missing <= 0:
            return 0.0
        for taken in self._taken:
            missing -= taken.amount
            if missing <= 0:
                return taken.back - now
        raise AssertionError("what is missing was taken")

    def take(self, amount: int, now: float) -> _Taken:
        """Take so much, also when it is not there."""
        taken = _Taken(now + WINDOW, amount)
        self._left -= amount
        self._taken.append(taken)
        return taken

    def correct(self, taken: _Taken | None, more: int, now: float) -> None:
        """Take more than was taken; or give back what was too much, unless it has flowed back already."""
        self._refill(now)
        if more > 0:
            self.take(more, now)
        elif taken is not None and taken.back > now:
            given = min(taken.amount, -more)
            self._left += given
            taken.amount -= given

    def _refill(self, now: float) -> None:
        while self._taken and self._taken[0].back <= now:
            self._left += self._taken.popleft().amount


def _positive(name: str, limit: int) -> int:
    if limit < 1:
        raise Mistake(f"{name} is {limit}, with which no call would ever be made; leave it out where there is no limit")
    return limit
