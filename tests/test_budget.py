"""Budgets: hard stops that hold for an operation and all below it, over crashes, for parallel agents together."""

from __future__ import annotations

import pytest

from podium import Agent
from podium.agent import Budget
from podium.engines.model.caller import Model, Retry
from podium.engines.model.loop import ModelEngine
from podium.engines.scripted import ScriptedWire
from podium.errors import Mistake
from podium.event import ModelReplied
from podium.store.fault import refusal_after
from podium.usage import Usage

from .studio import Studio, at_once

HUNDRED = Usage(input_tokens=60, output_tokens=40)


async def test_a_run_ends_where_its_tokens_do_and_says_what_there_is(studio: Studio) -> None:
    studio.agent("lead", says=[{"calls": [{"name": "one"}], "usage": HUNDRED}, {"says": "x", "usage": HUNDRED}])

    async with studio.app() as app:
        result = await app.run(studio.agents["lead"], "go", budget=Budget(tokens=150))

    assert result.outcome == "failed"
    assert result.error == "lead: the run's budget of 150 tokens has no room for a model call: 100 are spent"
    assert result.usage.tokens == 100


async def test_model_calls_can_be_limited(studio: Studio) -> None:
    studio.agent("lead", says=[{"calls": [{"name": "one"}]}, {"calls": [{"name": "two"}]}, "never"])

    async with studio.app() as app:
        result = await app.run(studio.agents["lead"], "go", budget=Budget(turns=2))

    assert result.error == "lead: the run's budget of 2 model calls has no room for a model call: 2 are spent"
    assert result.usage.calls == 2


async def test_an_agents_budget_covers_those_that_work_for_it(studio: Studio) -> None:
    ask = {"calls": [{"name": "helper", "arguments": {"request": "go"}}], "usage": HUNDRED}
    studio.agent("helper", says=[{"says": "helped", "usage": HUNDRED}])
    studio.agent("lead", says=[ask, {"says": "never", "usage": HUNDRED}], agents=["helper"], budget=Budget(turns=2))

    result = await studio.run("lead", "go")

    assert result.error is not None
    assert "lead's budget of 2 model calls has no room" in result.error


async def test_parallel_agents_cannot_overdraw_together(studio: Studio) -> None:
    for name in ("a", "b", "c"):
        studio.agent(name, says=[{"says": "ok", "delay": 0.01, "usage": HUNDRED}])
    studio.agent("lead", advisors=["a", "b", "c"])

    async with studio.app() as app:
        result = await app.run(studio.agents["lead"], "go", agents=studio.agents.values(), budget=Budget(turns=2))

    assert result.usage.calls == 2
    assert not result.succeeded


async def test_what_was_spent_before_a_crash_counts_after_it(studio: Studio) -> None:
    studio.agent("lead", says=[{"calls": [{"name": "one"}], "usage": HUNDRED}, {"says": "x", "usage": HUNDRED}])
    async with studio.app(fault=refusal_after(6)) as app:
        first = await app.run(studio.agents["lead"], "go", budget=Budget(tokens=150))
    assert first.outcome == "interrupted"
    assert studio.events(first, ModelReplied)
    studio.bury()

    result = await studio.resume(first.run_id)

    assert result.error == "lead: the run's budget of 150 tokens has no room for a model call: 100 are spent"


async def test_money_cannot_be_limited_where_no_price_is_known(studio: Studio) -> None:
    unknown = ModelEngine(Model(wire=ScriptedWire("ok")), name="elsewhere:x", retry=Retry(sleep=at_once))
    agent = Agent(name="lead", engine="elsewhere")

    async with studio.app(engines={"elsewhere": unknown}) as app:
        with pytest.raises(Mistake, match=r"lead thinks with elsewhere:x, whose price is not known.*limit tokens"):
            await app.run(agent, "go", budget=Budget(usd=1.0))


async def test_a_run_that_takes_too_long_is_over(studio: Studio) -> None:
    studio.agent("lead", says=[{"silent": True}])

    async with studio.app() as app:
        result = await app.run(studio.agents["lead"], "go", budget=Budget(seconds=0.05))

    assert result.error == "lead: the run's budget of 0.05 s is used up"
