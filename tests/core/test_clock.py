"""Time limits are paused while a run waits for a person."""

from __future__ import annotations

import math
from time import monotonic

import anyio
from anyio.lowlevel import checkpoint

from podium.core.clock import PausableTimeout, RunTimeouts


async def test_a_block_that_takes_too_long_is_left() -> None:
    clock = RunTimeouts()

    with clock.apply_timeout("lead", 0.01) as limit:
        await anyio.sleep_forever()

    assert limit.scope.cancelled_caught


async def test_a_timeout_is_paused_while_an_operation_below_it_waits_for_a_person() -> None:
    clock = RunTimeouts()

    with clock.apply_timeout("lead", 60) as around, clock.apply_timeout("lead/advice:legal#1", 60) as beside:
        with clock.pause_timeouts("lead/turn#1"):
            assert around.scope.deadline == math.inf
            assert beside.scope.deadline < math.inf
        assert 59 < around.scope.deadline - monotonic() <= 60.01


async def test_a_name_that_begins_like_another_is_not_above_it() -> None:
    clock = RunTimeouts()

    with clock.apply_timeout("lead", 60) as limit, clock.pause_timeouts("leader/turn#1"):
        assert limit.scope.deadline < math.inf


async def test_a_timeout_stays_paused_until_both_of_two_requests_are_answered() -> None:
    clock = RunTimeouts()

    with clock.apply_timeout("lead", 60) as limit:
        with clock.pause_timeouts("lead/tool#1"):
            with clock.pause_timeouts("lead/tool#2"):
                pass
            assert limit.scope.deadline == math.inf
        assert limit.scope.deadline < math.inf


async def test_a_deadline_that_is_moved_meanwhile_holds_when_time_goes_on() -> None:
    limit = PausableTimeout(monotonic() + 1)
    limit.pause()
    limit.move_deadline(monotonic() + 100)
    await checkpoint()

    limit.resume()

    assert 99 < limit.scope.deadline - monotonic() <= 100.01
    assert limit.paused_seconds > 0
