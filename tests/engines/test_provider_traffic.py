from __future__ import annotations

import asyncio
import math
import selectors
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import anyio
import pytest
from anyio import CancelScope, create_task_group, move_on_after, sleep
from hypothesis import given
from hypothesis import strategies as st

from podium.engines.model.provider_traffic import ProviderThrottle
from podium.values.errors import Mistake, OutsideFailed

AWAY = OutsideFailed("cannot be reached", retryable=True)
BROKEN = OutsideFailed("answered 500", retryable=True, status=500)
BUSY = OutsideFailed("answered 429", retryable=True, retry_after=20.0, status=429)
NO_KEY = OutsideFailed("answered 401", status=401)


class Skipping(selectors.SelectSelector):
    """Passes the time at once in which nothing would happen."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "everybody waits for somebody else"
            self.now += timeout
        return ready


class Skipped(asyncio.SelectorEventLoop):
    """A loop in which waiting takes no time, and its clock says that it did."""

    def __init__(self) -> None:
        self._skipping = Skipping()
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.now


def in_no_time(scene: Callable[[], Awaitable[None]]) -> None:
    anyio.run(scene, backend_options={"loop_factory": Skipped})


def now() -> float:
    return asyncio.get_running_loop().time()


def traffic(**limits: Any) -> ProviderThrottle:
    return ProviderThrottle(clock=now, jitter=lambda: 1.0, **limits)


@dataclass
class Street:
    """Calls on their way to a provider: when each began, by its number."""

    traffic: ProviderThrottle
    began: dict[int, float] = field(default_factory=dict)
    under_way: int = 0
    most: int = 0

    async def go(self, number: int, *, tokens: int = 1, lasts: float = 0.0) -> None:
        async with self.traffic.reserve_slot(tokens):
            self.began[number] = now()
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            try:
                await sleep(lasts)
            finally:
                self.under_way -= 1


# Limits


def test_without_limits_nobody_waits() -> None:
    async def scene() -> None:
        street = Street(traffic())
        async with create_task_group() as group:
            for number in range(100):
                group.start_soon(partial(street.go, number, tokens=10**9, lasts=5.0))

        assert set(street.began.values()) == {0.0}
        assert street.most == 100

    in_no_time(scene)


def test_calls_beyond_the_limit_wait_for_the_minute_to_pass_in_order() -> None:
    async def scene() -> None:
        street = Street(traffic(requests_per_minute=2))
        async with create_task_group() as group:
            for number in range(5):
                group.start_soon(street.go, number)

        assert street.began == {0: 0.0, 1: 0.0, 2: 60.0, 3: 60.0, 4: 120.0}

    in_no_time(scene)


def test_a_call_of_more_tokens_than_a_minute_has_goes_alone() -> None:
    async def scene() -> None:
        street = Street(traffic(tokens_per_minute=100))
        async with create_task_group() as group:
            for number, tokens in enumerate([60, 500, 30]):
                group.start_soon(partial(street.go, number, tokens=tokens))

        assert street.began == {0: 0.0, 1: 60.0, 2: 120.0}

    in_no_time(scene)


def test_tokens_that_were_not_needed_are_there_for_others() -> None:
    async def scene() -> None:
        one = traffic(tokens_per_minute=100)
        street = Street(one)
        async with create_task_group() as group:
            async with one.reserve_slot(100) as first:
                group.start_soon(partial(street.go, 2, tokens=70))
                await sleep(1.0)
                assert one.estimate_delay(70) == math.inf
                first.record_tokens(20)

        assert street.began[2] == 1.0
        assert one.estimate_delay(10) == 0.0
        assert one.estimate_delay(11) == 59.0

    in_no_time(scene)


def test_what_has_flowed_back_already_is_not_given_back_again() -> None:
    async def scene() -> None:
        one = traffic(tokens_per_minute=100)
        async with one.reserve_slot(100) as slow:
            await sleep(61.0)
            async with one.reserve_slot(100):
                slow.record_tokens(10)
                assert one.estimate_delay(1) == 60.0

    in_no_time(scene)


def test_tokens_that_were_needed_on_top_are_taken_too() -> None:
    async def scene() -> None:
        one = traffic(tokens_per_minute=100)
        async with one.reserve_slot(10) as turn:
            turn.record_tokens(150)

        assert one.estimate_delay(1) == 60.0

    in_no_time(scene)


@pytest.mark.parametrize("name", ["requests_per_minute", "tokens_per_minute", "concurrent"])
def test_a_limit_that_lets_nothing_through_is_a_mistake(name: str) -> None:
    with pytest.raises(Mistake, match=f"{name} is 0, with which no call would ever be made"):
        traffic(**{name: 0})


LIMIT = st.none() | st.integers(1, 4)


@dataclass(frozen=True)
class Visitor:
    """Somebody who calls. `patience` is when they go away, wherever they are then."""

    arrives: int
    tokens: int
    lasts: int
    patience: float


VISITORS = st.lists(
    st.builds(
        Visitor,
        arrives=st.integers(0, 90),
        tokens=st.integers(0, 150),
        lasts=st.integers(0, 40),
        patience=st.just(math.inf) | st.integers(0, 100),
    ),
    max_size=12,
)


async def come(street: Street, visitors: list[Visitor]) -> None:
    """All of them, each at their time."""

    async def visit(number: int, visitor: Visitor) -> None:
        await sleep(visitor.arrives)
        with move_on_after(visitor.patience):
            await street.go(number, tokens=visitor.tokens, lasts=visitor.lasts)

    async with create_task_group() as group:
        for number, visitor in enumerate(visitors):
            group.start_soon(visit, number, visitor)


@given(LIMIT, st.none() | st.integers(20, 200), LIMIT, VISITORS)
def test_no_minute_has_more_than_allowed_and_nobody_starves(
    requests: int | None, tokens: int | None, concurrent: int | None, visitors: list[Visitor]
) -> None:
    async def scene() -> None:
        one = traffic(requests_per_minute=requests, tokens_per_minute=tokens, concurrent=concurrent)
        street = Street(one)
        await come(street, visitors)

        began = sorted((at, number) for number, at in street.began.items())
        for first, _ in began:
            minute = [visitors[number].tokens for at, number in began if first <= at < first + 60]
            assert len(minute) <= (requests or math.inf)
            assert sum(min(used, tokens or 0) for used in minute) <= (tokens or math.inf)
        assert street.most <= (concurrent or math.inf)
        assert {n for n, visitor in enumerate(visitors) if visitor.patience == math.inf} <= set(street.began)
        # In order of arrival: who came later does not go before.
        assert all(
            visitors[earlier].arrives <= visitors[later].arrives
            for (a, earlier), (b, later) in pairwise(began)
            if a < b
        )
        await sleep(60.0)
        again = Street(one)
        everybody = [Visitor(0, 1, 10, math.inf)] * min(requests or 9, concurrent or 9)
        await come(again, everybody)
        assert again.most == len(everybody), "every slot has come back"

    in_no_time(scene)


# Trouble


def test_a_single_failure_holds_nobody() -> None:
    one = traffic_now()

    one.record_failure(BROKEN)

    assert one.estimate_delay(1) == 0.0


def test_two_failures_hold_everybody_unless_one_succeeded_between() -> None:
    held, free = traffic_now(), traffic_now()

    held.record_failure(BROKEN)
    held.record_failure(AWAY)
    free.record_failure(BROKEN)
    free.record_success()
    free.record_failure(AWAY)

    assert (held.estimate_delay(1), free.estimate_delay(1)) == (1.0, 0.0)


@pytest.mark.parametrize("error", [NO_KEY, OutsideFailed("answered 400", status=400), OutsideFailed("is no address")])
def test_a_failure_that_lasts_holds_nobody(error: OutsideFailed) -> None:
    one = traffic_now()

    for _ in range(5):
        one.record_failure(error)

    assert one.estimate_delay(1) == 0.0


def test_the_provider_says_when_to_come_back_and_a_late_success_changes_nothing() -> None:
    one = traffic_now()

    one.record_failure(BROKEN)
    one.record_failure(BUSY)
    one.record_success()

    assert one.estimate_delay(1) == 20.0


def traffic_now() -> ProviderThrottle:
    """Traffic at a moment that does not pass."""
    return ProviderThrottle(clock=lambda: 0.0, jitter=lambda: 1.0)


def test_holds_double_up_to_half_a_minute() -> None:
    async def scene() -> None:
        one = traffic()
        one.record_failure(AWAY)
        holds = []
        for _ in range(8):
            async with one.reserve_slot(1):
                one.record_failure(AWAY)
                one.record_failure(AWAY)
            holds.append(one.estimate_delay(1))

        assert holds == [1, 2, 4, 8, 16, 30, 30, 30]

    in_no_time(scene)


def test_holds_are_spread_so_that_processes_do_not_come_back_together() -> None:
    holds = []
    for chance in (0.0, 0.5, 1.0):
        one = ProviderThrottle(clock=lambda: 0.0, jitter=partial(float, chance))
        one.record_failure(AWAY)
        one.record_failure(AWAY)
        holds.append(one.estimate_delay(1))

    assert holds == [0.5, 0.75, 1.0]


@pytest.fixture
def port() -> int:
    """Where nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def test_one_of_a_hundred_sessions_finds_out_whether_a_server_is_back(port: int) -> None:
    async def scene() -> None:
        one = traffic()
        one.record_failure(AWAY)
        one.record_failure(AWAY)
        attempts: list[float] = []
        served: list[float] = []

        async def session() -> None:
            while True:
                async with one.reserve_slot(100):
                    attempts.append(now())
                    try:
                        socket.create_connection(("127.0.0.1", port)).close()
                    except ConnectionRefusedError:
                        one.record_failure(AWAY)
                    else:
                        one.record_success()
                        served.append(now())
                        return

        async with create_task_group() as group:
            for _ in range(100):
                group.start_soon(session)
            await sleep(70.0)
            refused = list(attempts)
            with socket.create_server(("127.0.0.1", port), backlog=128):
                await sleep(60.0)

        assert refused == [1, 3, 7, 15, 31, 61]
        assert attempts[len(refused) :] == served == [91.0] * 100

    in_no_time(scene)


def test_a_probe_that_is_cancelled_passes_the_question_on() -> None:
    async def scene() -> None:
        one = traffic()
        one.record_failure(AWAY)
        one.record_failure(AWAY)
        probes: list[tuple[int, float]] = []

        async def ask(number: int, scope: CancelScope) -> None:
            with scope:
                async with one.reserve_slot(1):
                    probes.append((number, now()))
                    await sleep(100.0)
                    one.record_success()

        scopes = [CancelScope() for _ in range(4)]
        async with create_task_group() as group:
            for number, scope in enumerate(scopes):
                group.start_soon(ask, number, scope)
            await sleep(5.0)
            scopes[1].cancel()
            scopes[0].cancel()

        assert probes == [(0, 1.0), (2, 5.0), (3, 105.0)]
        assert one.estimate_delay(1) == 0.0

    in_no_time(scene)


def test_all_go_as_soon_as_the_probe_is_answered() -> None:
    async def scene() -> None:
        one = traffic()
        one.record_failure(AWAY)
        one.record_failure(AWAY)
        street = Street(one)

        async def probe() -> None:
            async with one.reserve_slot(1):
                await sleep(5.0)
                one.record_success()
                await sleep(100.0)

        async with create_task_group() as group:
            group.start_soon(probe)
            await sleep(0.5)
            for number in range(3):
                group.start_soon(street.go, number)

        assert street.began == {0: 6.0, 1: 6.0, 2: 6.0}

    in_no_time(scene)


def test_calls_from_before_a_hold_do_not_lengthen_it() -> None:
    async def scene() -> None:
        one = traffic()

        async def fail() -> None:
            async with one.reserve_slot(1):
                await sleep(1.0)
                one.record_failure(AWAY)

        async with create_task_group() as group:
            for _ in range(100):
                group.start_soon(fail)

        assert one.estimate_delay(1) == 1.0

    in_no_time(scene)


@pytest.mark.parametrize(("error", "wait"), [(NO_KEY, 0.0), (BUSY, 20.0)])
def test_what_a_probe_is_told_holds_for_all(error: OutsideFailed, wait: float) -> None:
    async def scene() -> None:
        one = traffic()
        one.record_failure(AWAY)
        one.record_failure(AWAY)
        async with one.reserve_slot(1):
            assert one.estimate_delay(1) == math.inf
            one.record_failure(error)
            assert one.estimate_delay(1) == wait

        assert one.estimate_delay(1) == wait

    in_no_time(scene)


@given(st.integers(0, 60), st.integers(0, 200), LIMIT, VISITORS)
def test_whatever_fails_and_whoever_leaves_all_get_through_once_the_provider_is_back(
    breaks: int, lasts: int, concurrent: int | None, visitors: list[Visitor]
) -> None:
    async def scene() -> None:
        one = traffic(concurrent=concurrent)
        served: set[int] = set()

        async def visit(number: int, visitor: Visitor) -> None:
            await sleep(visitor.arrives)
            with move_on_after(visitor.patience):
                while number not in served:
                    async with one.reserve_slot(visitor.tokens):
                        await sleep(visitor.lasts)
                        if breaks <= now() < breaks + lasts:
                            one.record_failure((AWAY, BROKEN, BUSY)[number % 3])
                        else:
                            one.record_success()
                            served.add(number)
                    await sleep(1.0)

        async with create_task_group() as group:
            for number, visitor in enumerate(visitors):
                group.start_soon(visit, number, visitor)

        assert {n for n, visitor in enumerate(visitors) if visitor.patience == math.inf} <= served
        await sleep(60.0)
        assert one.estimate_delay(1) == 0.0

    in_no_time(scene)
