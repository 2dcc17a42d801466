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

from podium.engines.model.provider_throttle import QUEUE_NOTICE_SECONDS, ProviderThrottle
from podium.values.errors import Mistake, OutsideFailed

UNREACHABLE = OutsideFailed("cannot be reached", retryable=True)
BROKEN = OutsideFailed("answered 500", retryable=True, status=500)
BUSY = OutsideFailed("answered 429", retryable=True, retry_after=20.0, status=429)
NO_KEY = OutsideFailed("answered 401", status=401)


class SkippingSelector(selectors.SelectSelector):
    """Skips time in which nothing would happen."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "everybody waits for somebody else"
            self.now += timeout
        return ready


class SkippingEventLoop(asyncio.SelectorEventLoop):
    """An event loop in which waiting takes no real time; its clock advances as if it did."""

    def __init__(self) -> None:
        self._skipping = SkippingSelector()
        super().__init__(self._skipping)

    def time(self) -> float:
        return self._skipping.now


def run_skipping_time(scene: Callable[[], Awaitable[None]]) -> None:
    anyio.run(scene, backend_options={"loop_factory": SkippingEventLoop})


def now() -> float:
    return asyncio.get_running_loop().time()


def make_throttle(**limits: Any) -> ProviderThrottle:
    return ProviderThrottle(clock=now, jitter=lambda: 1.0, **limits)


@dataclass
class CallRecorder:
    """Records when each call to a provider started, by its number."""

    throttle: ProviderThrottle
    started_at: dict[int, float] = field(default_factory=dict)
    in_flight: int = 0
    most_in_flight: int = 0

    async def make_call(self, number: int, *, tokens: int = 1, lasts: float = 0.0) -> None:
        async with self.throttle.reserve_slot(tokens):
            self.started_at[number] = now()
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            try:
                await sleep(lasts)
            finally:
                self.in_flight -= 1


# Limits


def test_a_call_that_waits_for_other_calls_is_told_how_many_are_ahead_of_it() -> None:
    async def scene() -> None:
        throttle, reports = make_throttle(concurrent=1), list[tuple[float, int, int]]()

        async def make_call(number: int) -> None:
            async with throttle.reserve_slot(1, lambda ahead: reports.append((now(), number, ahead))):
                await sleep(4.0)

        async with create_task_group() as group:
            for number in range(4):
                group.start_soon(make_call, number)

        # The second call waited only 4 s, and at 5 s the first call is over.
        assert reports == [(QUEUE_NOTICE_SECONDS, 2, 1), (QUEUE_NOTICE_SECONDS, 3, 2)]

    run_skipping_time(scene)


def test_a_wait_for_the_rate_limit_is_no_queue() -> None:
    async def scene() -> None:
        throttle, reports = make_throttle(requests_per_minute=1), list[int]()
        for _ in range(2):
            async with throttle.reserve_slot(1, reports.append):
                pass

        assert (now(), reports) == (60.0, [])

    run_skipping_time(scene)


def test_without_limits_no_call_waits() -> None:
    async def scene() -> None:
        recorder = CallRecorder(make_throttle())
        async with create_task_group() as group:
            for number in range(100):
                group.start_soon(partial(recorder.make_call, number, tokens=10**9, lasts=5.0))

        assert set(recorder.started_at.values()) == {0.0}
        assert recorder.most_in_flight == 100

    run_skipping_time(scene)


def test_calls_beyond_the_limit_wait_for_the_minute_to_pass_in_order() -> None:
    async def scene() -> None:
        recorder = CallRecorder(make_throttle(requests_per_minute=2))
        async with create_task_group() as group:
            for number in range(5):
                group.start_soon(recorder.make_call, number)

        assert recorder.started_at == {0: 0.0, 1: 0.0, 2: 60.0, 3: 60.0, 4: 120.0}

    run_skipping_time(scene)


def test_a_call_of_more_tokens_than_a_minute_has_goes_alone() -> None:
    async def scene() -> None:
        recorder = CallRecorder(make_throttle(tokens_per_minute=100))
        async with create_task_group() as group:
            for number, tokens in enumerate([60, 500, 30]):
                group.start_soon(partial(recorder.make_call, number, tokens=tokens))

        assert recorder.started_at == {0: 0.0, 1: 60.0, 2: 120.0}

    run_skipping_time(scene)


def test_unused_tokens_are_available_to_other_calls() -> None:
    async def scene() -> None:
        throttle = make_throttle(tokens_per_minute=100)
        recorder = CallRecorder(throttle)
        async with create_task_group() as group:
            async with throttle.reserve_slot(100) as first:
                group.start_soon(partial(recorder.make_call, 2, tokens=70))
                await sleep(1.0)
                assert throttle.estimate_delay(70) == math.inf
                first.record_tokens(20)

        assert recorder.started_at[2] == 1.0
        assert throttle.estimate_delay(10) == 0.0
        assert throttle.estimate_delay(11) == 59.0

    run_skipping_time(scene)


def test_tokens_that_were_already_returned_are_not_returned_again() -> None:
    async def scene() -> None:
        throttle = make_throttle(tokens_per_minute=100)
        async with throttle.reserve_slot(100) as slow:
            await sleep(61.0)
            async with throttle.reserve_slot(100):
                slow.record_tokens(10)
                assert throttle.estimate_delay(1) == 60.0

    run_skipping_time(scene)


def test_tokens_used_beyond_the_estimate_are_deducted_too() -> None:
    async def scene() -> None:
        throttle = make_throttle(tokens_per_minute=100)
        async with throttle.reserve_slot(10) as slot:
            slot.record_tokens(150)

        assert throttle.estimate_delay(1) == 60.0

    run_skipping_time(scene)


@pytest.mark.parametrize("name", ["requests_per_minute", "tokens_per_minute", "concurrent"])
def test_a_limit_that_lets_nothing_through_is_a_mistake(name: str) -> None:
    with pytest.raises(Mistake, match=f"{name} must be at least 1, got 0"):
        make_throttle(**{name: 0})


LIMIT = st.none() | st.integers(1, 4)


@dataclass(frozen=True)
class PlannedCall:
    """A caller. `gives_up_after` is the time after which it is cancelled, whatever it is doing then."""

    arrives: int
    tokens: int
    lasts: int
    gives_up_after: float


PLANNED_CALLS = st.lists(
    st.builds(
        PlannedCall,
        arrives=st.integers(0, 90),
        tokens=st.integers(0, 150),
        lasts=st.integers(0, 40),
        gives_up_after=st.just(math.inf) | st.integers(0, 100),
    ),
    max_size=12,
)


async def make_planned_calls(recorder: CallRecorder, planned_calls: list[PlannedCall]) -> None:
    """Make all calls, each at its time."""

    async def make_planned_call(number: int, planned: PlannedCall) -> None:
        await sleep(planned.arrives)
        with move_on_after(planned.gives_up_after):
            await recorder.make_call(number, tokens=planned.tokens, lasts=planned.lasts)

    async with create_task_group() as group:
        for number, planned in enumerate(planned_calls):
            group.start_soon(make_planned_call, number, planned)


@given(LIMIT, st.none() | st.integers(20, 200), LIMIT, PLANNED_CALLS)
def test_no_minute_has_more_than_allowed_and_no_call_starves(
    requests: int | None, tokens: int | None, concurrent: int | None, planned_calls: list[PlannedCall]
) -> None:
    async def scene() -> None:
        throttle = make_throttle(requests_per_minute=requests, tokens_per_minute=tokens, concurrent=concurrent)
        recorder = CallRecorder(throttle)
        await make_planned_calls(recorder, planned_calls)

        starts = sorted((at, number) for number, at in recorder.started_at.items())
        for first, _ in starts:
            minute = [planned_calls[number].tokens for at, number in starts if first <= at < first + 60]
            assert len(minute) <= (requests or math.inf)
            assert sum(min(used, tokens or 0) for used in minute) <= (tokens or math.inf)
        assert recorder.most_in_flight <= (concurrent or math.inf)
        assert {n for n, planned in enumerate(planned_calls) if planned.gives_up_after == math.inf} <= set(
            recorder.started_at
        )
        # In order of arrival: a later call never overtakes an earlier one.
        assert all(
            planned_calls[earlier].arrives <= planned_calls[later].arrives
            for (a, earlier), (b, later) in pairwise(starts)
            if a < b
        )
        await sleep(60.0)
        again = CallRecorder(throttle)
        everybody = [PlannedCall(0, 1, 10, math.inf)] * min(requests or 9, concurrent or 9)
        await make_planned_calls(again, everybody)
        assert again.most_in_flight == len(everybody), "every slot has come back"

    run_skipping_time(scene)


# Trouble


def test_a_single_failure_delays_no_call() -> None:
    throttle = make_throttle_without_clock()

    throttle.record_failure(BROKEN)

    assert throttle.estimate_delay(1) == 0.0


def test_two_failures_delay_all_calls_unless_one_succeeded_between() -> None:
    held, free = make_throttle_without_clock(), make_throttle_without_clock()

    held.record_failure(BROKEN)
    held.record_failure(UNREACHABLE)
    free.record_failure(BROKEN)
    free.record_success()
    free.record_failure(UNREACHABLE)

    assert (held.estimate_delay(1), free.estimate_delay(1)) == (1.0, 0.0)


@pytest.mark.parametrize("error", [NO_KEY, OutsideFailed("answered 400", status=400), OutsideFailed("is no address")])
def test_permanent_failures_delay_no_call(error: OutsideFailed) -> None:
    throttle = make_throttle_without_clock()

    for _ in range(5):
        throttle.record_failure(error)

    assert throttle.estimate_delay(1) == 0.0


def test_retry_after_sets_the_delay_and_a_late_success_changes_nothing() -> None:
    throttle = make_throttle_without_clock()

    throttle.record_failure(BROKEN)
    throttle.record_failure(BUSY)
    throttle.record_success()

    assert throttle.estimate_delay(1) == 20.0


def test_a_provider_cannot_hold_calls_back_for_more_than_a_month() -> None:
    throttle = make_throttle_without_clock()

    throttle.record_failure(OutsideFailed("answered 429", retryable=True, retry_after=1e9, status=429))

    assert throttle.estimate_delay(1) == 0.0


def make_throttle_without_clock() -> ProviderThrottle:
    """Make a throttle whose time stands still."""
    return ProviderThrottle(clock=lambda: 0.0, jitter=lambda: 1.0)


def test_delays_double_up_to_half_a_minute() -> None:
    async def scene() -> None:
        throttle = make_throttle()
        throttle.record_failure(UNREACHABLE)
        holds = []
        for _ in range(8):
            async with throttle.reserve_slot(1):
                throttle.record_failure(UNREACHABLE)
                throttle.record_failure(UNREACHABLE)
            holds.append(throttle.estimate_delay(1))

        assert holds == [1, 2, 4, 8, 16, 30, 30, 30]

    run_skipping_time(scene)


def test_delays_are_spread_so_that_processes_do_not_retry_together() -> None:
    holds = []
    for chance in (0.0, 0.5, 1.0):
        throttle = ProviderThrottle(clock=lambda: 0.0, jitter=partial(float, chance))
        throttle.record_failure(UNREACHABLE)
        throttle.record_failure(UNREACHABLE)
        holds.append(throttle.estimate_delay(1))

    assert holds == [0.5, 0.75, 1.0]


@pytest.fixture
def port() -> int:
    """Return a port on which nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def test_one_of_a_hundred_sessions_probes_whether_a_server_is_back(port: int) -> None:
    async def scene() -> None:
        throttle = make_throttle()
        throttle.record_failure(UNREACHABLE)
        throttle.record_failure(UNREACHABLE)
        attempts: list[float] = []
        served: list[float] = []

        async def session() -> None:
            while True:
                async with throttle.reserve_slot(100):
                    attempts.append(now())
                    try:
                        socket.create_connection(("127.0.0.1", port)).close()
                    except ConnectionRefusedError:
                        throttle.record_failure(UNREACHABLE)
                    else:
                        throttle.record_success()
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

    run_skipping_time(scene)


def test_after_a_cancelled_probe_the_next_call_probes() -> None:
    async def scene() -> None:
        throttle = make_throttle()
        throttle.record_failure(UNREACHABLE)
        throttle.record_failure(UNREACHABLE)
        probes: list[tuple[int, float]] = []

        async def ask(number: int, scope: CancelScope) -> None:
            with scope:
                async with throttle.reserve_slot(1):
                    probes.append((number, now()))
                    await sleep(100.0)
                    throttle.record_success()

        scopes = [CancelScope() for _ in range(4)]
        async with create_task_group() as group:
            for number, scope in enumerate(scopes):
                group.start_soon(ask, number, scope)
            await sleep(5.0)
            scopes[1].cancel()
            scopes[0].cancel()

        assert probes == [(0, 1.0), (2, 5.0), (3, 105.0)]
        assert throttle.estimate_delay(1) == 0.0

    run_skipping_time(scene)


def test_all_calls_start_as_soon_as_the_probe_succeeds() -> None:
    async def scene() -> None:
        throttle = make_throttle()
        throttle.record_failure(UNREACHABLE)
        throttle.record_failure(UNREACHABLE)
        recorder = CallRecorder(throttle)

        async def probe() -> None:
            async with throttle.reserve_slot(1):
                await sleep(5.0)
                throttle.record_success()
                await sleep(100.0)

        async with create_task_group() as group:
            group.start_soon(probe)
            await sleep(0.5)
            for number in range(3):
                group.start_soon(recorder.make_call, number)

        assert recorder.started_at == {0: 6.0, 1: 6.0, 2: 6.0}

    run_skipping_time(scene)


def test_calls_that_started_before_a_delay_do_not_lengthen_it() -> None:
    async def scene() -> None:
        throttle = make_throttle()

        async def fail() -> None:
            async with throttle.reserve_slot(1):
                await sleep(1.0)
                throttle.record_failure(UNREACHABLE)

        async with create_task_group() as group:
            for _ in range(100):
                group.start_soon(fail)

        assert throttle.estimate_delay(1) == 1.0

    run_skipping_time(scene)


@pytest.mark.parametrize(("error", "wait"), [(NO_KEY, 0.0), (BUSY, 20.0)])
def test_the_outcome_of_a_probe_applies_to_all_calls(error: OutsideFailed, wait: float) -> None:
    async def scene() -> None:
        throttle = make_throttle()
        throttle.record_failure(UNREACHABLE)
        throttle.record_failure(UNREACHABLE)
        async with throttle.reserve_slot(1):
            assert throttle.estimate_delay(1) == math.inf
            throttle.record_failure(error)
            assert throttle.estimate_delay(1) == wait

        assert throttle.estimate_delay(1) == wait

    run_skipping_time(scene)


@given(st.integers(0, 60), st.integers(0, 200), LIMIT, PLANNED_CALLS)
def test_all_waiting_calls_succeed_once_the_provider_is_back_despite_failures_and_cancellations(
    breaks: int, lasts: int, concurrent: int | None, planned_calls: list[PlannedCall]
) -> None:
    async def scene() -> None:
        throttle = make_throttle(concurrent=concurrent)
        served: set[int] = set()

        async def make_planned_call(number: int, planned: PlannedCall) -> None:
            await sleep(planned.arrives)
            with move_on_after(planned.gives_up_after):
                while number not in served:
                    async with throttle.reserve_slot(planned.tokens):
                        await sleep(planned.lasts)
                        if breaks <= now() < breaks + lasts:
                            throttle.record_failure((UNREACHABLE, BROKEN, BUSY)[number % 3])
                        else:
                            throttle.record_success()
                            served.add(number)
                    await sleep(1.0)

        async with create_task_group() as group:
            for number, planned in enumerate(planned_calls):
                group.start_soon(make_planned_call, number, planned)

        assert {n for n, planned in enumerate(planned_calls) if planned.gives_up_after == math.inf} <= served
        await sleep(60.0)
        assert throttle.estimate_delay(1) == 0.0

    run_skipping_time(scene)
