"""Retries: a run that has ended is tried again from its failure, and keeps what it had done."""

from __future__ import annotations

from typing import Any

import pytest

from podium import Mistake, Result
from podium.values.agent import Advisors, Budget
from podium.values.event import RunStarted, TurnStarted
from podium.values.usage import Usage

from ..studio import Studio

DOWN = {"says": "never", "fails": {"status": 401, "times": 9}}
REFUSED = {"says": "", "stop": "content_filter"}
READ = {"calls": [{"name": "look", "arguments": {}}], "usage": Usage(input_tokens=1, output_tokens=1)}


def look() -> str:
    """Look at it."""
    return "it is red"


async def run_once(studio: Studio, **options: Any) -> Result:
    """Run the agent `lead`, with all others, and forget the calls."""
    async with studio.app() as app:
        lead, others = studio.agents["lead"], list(studio.agents.values())
        result = await app.run(lead, "go", agents=others, tools=[look], **options)
    studio.calls.clear()
    return result


async def retry(studio: Studio, run: str, **options: Any) -> Result:
    async with studio.app() as app:
        again = await app.retry(run, **options)
        async with app.resume(again, tools=[look]) as live:
            return await live.result()


def called(studio: Studio) -> list[str]:
    return [call.agent for call in studio.calls]


async def test_a_failed_model_call_is_made_again_and_nothing_before_it(studio: Studio) -> None:
    studio.agent("lead", says=[READ, DOWN], advisors=Advisors(agents=("legal",)))
    studio.agent("legal", says=["fine"])
    failed = await run_once(studio)
    studio.agent("lead", says=[READ, "the answer"], advisors=Advisors(agents=("legal",)))

    result = await retry(studio, failed.run_id)

    assert failed.outcome == "failed"
    assert (result.outcome, result.text) == ("succeeded", "the answer")
    assert called(studio) == ["lead"]
    [started] = studio.events(result, RunStarted)
    assert started.forked_from.startswith(f"{failed.run_id}@")


async def test_an_agent_that_refused_starts_again_and_the_others_do_not(studio: Studio) -> None:
    studio.agent("lead", says=[READ, "draft"], handoff="clerk")
    studio.agent("clerk", says=[READ, REFUSED])
    failed = await run_once(studio)
    studio.agent("clerk", says=[READ, "filed"])

    result = await retry(studio, failed.run_id)

    assert "refused" in (failed.error or "")
    assert result.text == "filed"
    assert called(studio) == ["clerk", "clerk"]


async def test_a_run_without_budget_continues_with_a_larger_one(studio: Studio) -> None:
    studio.agent("lead", says=[READ, READ, "the answer"])
    failed = await run_once(studio, budget=Budget(turns=2))

    still_failed = await retry(studio, failed.run_id)
    studio.calls.clear()
    result = await retry(studio, failed.run_id, budget={"turns": 3})

    assert [one.outcome for one in (failed, still_failed, result)] == ["failed", "failed", "succeeded"]
    assert (result.text, len(studio.calls)) == ("the answer", 1)


async def test_a_stopped_run_continues_where_it_was(studio: Studio) -> None:
    studio.agent("lead", says=[{"says": "never", "silent": True}], advisors=Advisors(agents=("legal",)))
    studio.agent("legal", says=["fine"])
    async with studio.start("lead", "go") as run:
        with run.entries() as entries:
            async for entry in entries:
                if isinstance(entry.event, TurnStarted) and entry.operation == "lead":
                    break
        await run.stop(by="me")
        stopped = await run.result()
    studio.calls.clear()
    studio.agent("lead", says=["the answer"], advisors=Advisors(agents=("legal",)))

    result = await retry(studio, stopped.run_id)

    assert (stopped.outcome, result.text) == ("cancelled", "the answer")
    assert called(studio) == ["lead"]


async def test_a_run_is_retried_from_an_agent(studio: Studio) -> None:
    studio.agent("lead", says=["draft"], handoff="clerk")
    studio.agent("clerk", says=["filed"])
    done = await run_once(studio)
    studio.agent("clerk", says=["filed better"])

    result = await retry(studio, done.run_id, start="clerk")

    assert (done.text, result.text) == ("filed", "filed better")
    assert called(studio) == ["clerk"]


async def test_a_retry_can_be_retried(studio: Studio) -> None:
    studio.agent("lead", says=[READ, DOWN])
    failed = await run_once(studio)
    failed_again = await retry(studio, failed.run_id)
    studio.agent("lead", says=[READ, "the answer"])
    studio.calls.clear()

    result = await retry(studio, failed_again.run_id)

    assert (failed_again.outcome, result.text, len(studio.calls)) == ("failed", "the answer", 1)


async def test_a_run_that_has_not_ended_is_not_retried(studio: Studio) -> None:
    studio.agent("lead", says=[{"says": "never", "silent": True}])
    async with studio.start("lead", "go") as run:
        async with studio.app() as app:
            with pytest.raises(Mistake, match=f"run {run.id} has not ended, so it cannot be retried; continue it with"):
                await app.retry(run.id)
        await run.stop()


async def test_a_run_that_succeeded_is_retried_only_from_an_agent(studio: Studio) -> None:
    studio.agent("lead", says=["done"])
    done = await run_once(studio)

    async with studio.app() as app:
        with pytest.raises(Mistake, match="--from"):
            await app.retry(done.run_id)
        with pytest.raises(Mistake, match="'clerk'; agents: lead"):
            await app.retry(done.run_id, start="clerk")
