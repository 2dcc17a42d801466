"""Rate limits for tools: an agent that calls a tool too often has to wait."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from podium.core.tool_rate_limit import MINUTE, RateLimit


class FakeClock:
    """A clock that advances only while somebody sleeps, or when a test sets it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


@given(st.integers(min_value=1, max_value=5), st.lists(st.floats(min_value=0, max_value=90), max_size=40))
def test_no_minute_has_more_beginnings_than_allowed(most: int, gaps: list[float]) -> None:
    import anyio

    async def acquire_all() -> list[float]:
        clock = FakeClock()
        rate_limit = RateLimit(most, clock=clock, sleep=clock.sleep)
        times = []
        for gap in gaps:
            clock.now += gap
            await rate_limit.acquire()
            times.append(clock.now)
        return times

    times = anyio.run(acquire_all)

    for first, later in zip(times, times[most:], strict=False):
        assert later - first >= MINUTE * 0.999999


async def test_a_slow_caller_never_waits() -> None:
    clock = FakeClock()
    rate_limit = RateLimit(2, clock=clock, sleep=clock.sleep)

    for _ in range(10):
        await rate_limit.acquire()
        clock.now += 30.0

    assert clock.now == 300.0
