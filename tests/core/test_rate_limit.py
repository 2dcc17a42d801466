"""Whoever acts too often waits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from podium.core.rate_limit import MINUTE, RateLimit


class Time:
    """A clock that goes on only while somebody sleeps, or is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


@given(st.integers(min_value=1, max_value=5), st.lists(st.floats(min_value=0, max_value=90), max_size=40))
def test_no_minute_has_more_beginnings_than_allowed(most: int, gaps: list[float]) -> None:
    import anyio

    async def begun() -> list[float]:
        clock = Time()
        pace = RateLimit(most, clock=clock, sleep=clock.sleep)
        times = []
        for gap in gaps:
            clock.now += gap
            await pace.acquire()
            times.append(clock.now)
        return times

    times = anyio.run(begun)

    for first, later in zip(times, times[most:], strict=False):
        assert later - first >= MINUTE * 0.999999


async def test_whoever_is_slow_never_waits() -> None:
    clock = Time()
    pace = RateLimit(2, clock=clock, sleep=clock.sleep)

    for _ in range(10):
        await pace.acquire()
        clock.now += 30.0

    assert clock.now == 300.0
