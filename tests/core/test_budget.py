"""Budgets: hard limits for an operation and everything below it, across crashes and for parallel agents together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from anyio import CancelScope, fail_after
from msgspec import structs

from podium import Agent, Run
from podium.engines.model.model_caller import BUDGET_WAIT_SECONDS
from podium.engines.model.model_wire import Model
from podium.engines.model.retry_policy import RetryPolicy
from podium.engines.model.tool_loop import ModelEngine
from podium.engines.script import ScriptedWire
from podium.store.fault_injection import refuse_after
from podium.store.mailbox import post_to_mailbox
from podium.values.agent import Advisors, Budget, Member, Team
from podium.values.errors import Mistake
from podium.values.event import BudgetChanged, ModelReplied, Noticed, TurnStarted
from podium.values.usage import Usage

from ..studio import Studio, skip_sleep

HUNDRED = Usage(input_tokens=60, output_tokens=40)


async def test_a_run_fails_when_its_token_budget_is_used_up_and_reports_what_was_spent(studio: Studio) -> None:
    studio.agent("lead", says=[{"calls": [{"name": "one"}], "usage": HUNDRED}, {"says": "x", "usage": HUNDRED}])

    async with studio.app() as app:
        result = await app.run(studio.agents["lead"], "go", budget=Budget(tokens=150))

    assert result.outcome == "failed"
    assert result.error == "lead: the run's budget of 150 tokens is not enough for the next model call: 100 used"
    assert result.usage.tokens == 100


async def test_model_calls_can_be_limited(studio: Studio) -> None:
    studio.agent("lead", says=[{"calls": [{"name": "one"}]}, {"calls": [{"name": "two"}]}, "never"])

    async with studio.app() as app:
        result = await app.run(studio.agents["lead"], "go", budget=Budget(turns=2))

    assert result.error == "lead: the run's budget of 2 model calls is not enough for the next model call: 2 used"
    assert result.usage.calls == 2


async def test_an_agents_budget_covers_those_that_work_for_it(studio: Studio) -> None:
    ask = {"calls": [{"name": "helper", "arguments": {"request": "go"}}], "usage": HUNDRED}
    studio.agent("helper", says=[{"says": "helped", "usage": HUNDRED}])
    studio.agent("lead", says=[ask, {"says": "never", "usage": HUNDRED}], agents=["helper"], budget=Budget(turns=2))

    result = await studio.run("lead", "go")

    assert result.error is not None
    assert "lead's budget of 2 model calls is not enough" in result.error


async def test_parallel_agents_cannot_overdraw_together(studio: Studio) -> None:
    for name in ("a", "b", "c"):
        studio.agent(name, says=[{"says": "ok", "delay": 0.01, "usage": HUNDRED}])
    studio.agent("lead", advisors=["a", "b", "c"])

    async with studio.app() as app:
        result = await app.run(studio.agents["lead"], "go", agents=studio.agents.values(), budget=Budget(turns=2))

    assert result.usage.calls == 2
    assert not result.succeeded


def make_priced_engine(says: Sequence[Any], *, usd_per_token: float) -> tuple[ModelEngine, ScriptedWire]:
    """An engine whose model costs this much for each token, and the wire that heard the calls."""

    def add_cost(usage: Usage) -> Usage:
        return structs.replace(usage, usd=usage.tokens * usd_per_token)

    wire = ScriptedWire(says)
    model = Model(wire=wire, name="m", add_cost=add_cost)
    return ModelEngine(model, name="m", retry=RetryPolicy(sleep=skip_sleep)), wire


async def test_parallel_members_stay_within_a_limit_on_money_and_the_run_is_no_success(studio: Studio) -> None:
    engine, wire = make_priced_engine([{"says": "x" * 4_000, "delay": 0.01}], usd_per_token=0.00002)
    names = [f"m{number}" for number in range(20)]
    members = [Agent(name=name, engine="priced", prompt="Answer.") for name in names]
    lead = Agent(name="lead", team=Team(mode="broadcast", members=tuple(Member(agent=name) for name in names)))

    async with studio.app(engines={"priced": engine}) as app:
        result = await app.run(lead, "go", agents=members, budget=Budget(usd=0.05))

    assert result.outcome == "failed"
    assert "the run's budget of 0.05 USD is not enough for the next model call" in (result.error or "")
    assert result.usage.usd <= 0.05
    assert [part.text for part in result.parts].count("x" * 4_000) == 2
    assert all(call.max_tokens is not None for call in wire.heard)


async def test_parallel_members_stay_within_a_limit_on_tokens(studio: Studio) -> None:
    names = ["a", "b", "c", "d"]
    for name in names:
        studio.agent(name, says=[{"says": "x" * 4_000, "delay": 0.01}])
    studio.agent("lead", team=Team(mode="broadcast", members=tuple(Member(agent=name) for name in names)))

    async with studio.app() as app:
        result = await app.run(studio.agents["lead"], "go", agents=studio.agents.values(), budget=Budget(tokens=2_500))

    assert not result.succeeded
    assert 2_000 < result.usage.tokens <= 2_500


async def test_calls_that_fit_one_after_another_wait_for_each_other_instead_of_failing(studio: Studio) -> None:
    names = ["a", "b", "c", "d"]
    for name in names:
        studio.agent(name, says=[{"says": "x" * 400, "delay": 0.01}])
    studio.agent("lead", team=Team(mode="broadcast", members=tuple(Member(agent=name) for name in names)))

    async with studio.app() as app:
        result = await app.run(studio.agents["lead"], "go", agents=studio.agents.values(), budget=Budget(tokens=2_500))

    assert result.succeeded
    assert [part.text for part in result.parts] == ["x" * 400] * 4


async def test_a_call_is_not_made_if_no_reply_fits_into_the_budget(studio: Studio) -> None:
    studio.agent("lead", says=["a reply of some twenty tokens, which is more than there is room for here"])

    async with studio.app() as app:
        result = await app.run(studio.agents["lead"], "go", budget=Budget(tokens=15))

    assert result.error == "lead: the run's budget of 15 tokens is not enough for the next model call: 0 used"
    assert result.usage.calls == 0


async def test_a_reply_is_limited_to_what_is_left_of_the_budget(studio: Studio) -> None:
    studio.agent("lead", says=["x" * 4_000, "never"])

    async with studio.app() as app:
        result = await app.run(studio.agents["lead"], "go", budget=Budget(tokens=100))

    assert result.usage.tokens <= 100
    assert studio.calls[0].max_tokens is not None
    assert studio.calls[0].max_tokens < 100


async def test_calls_without_a_limit_on_tokens_or_money_have_no_longest_reply(studio: Studio) -> None:
    studio.agent("lead", says=["done"])

    async with studio.app() as app:
        await app.run(studio.agents["lead"], "go", budget=Budget(turns=3))

    assert studio.calls[0].max_tokens is None


async def test_a_reply_that_exceeds_its_share_is_reported_with_what_was_used(studio: Studio) -> None:
    studio.agent("lead", says=[{"says": "done", "usage": HUNDRED}])

    async with studio.app() as app:
        result = await app.run(studio.agents["lead"], "go", budget=Budget(tokens=80))

    assert result.succeeded
    [notice] = studio.events(result, Noticed)
    assert notice.text == "the run's budget of 80 tokens was exceeded by the last reply: 100 used"


async def test_what_was_spent_before_a_crash_counts_after_it(studio: Studio) -> None:
    studio.agent("lead", says=[{"calls": [{"name": "one"}], "usage": HUNDRED}, {"says": "x", "usage": HUNDRED}])
    async with studio.app(fault=refuse_after(6)) as app:
        first = await app.run(studio.agents["lead"], "go", budget=Budget(tokens=150))
    assert first.outcome == "interrupted"
    assert studio.events(first, ModelReplied)
    studio.expire_leases()

    result = await studio.resume(first.run_id)

    assert result.error == "lead: the run's budget of 150 tokens is not enough for the next model call: 100 used"


async def test_money_cannot_be_limited_where_no_price_is_known(studio: Studio) -> None:
    unknown = ModelEngine(Model(wire=ScriptedWire("ok")), name="elsewhere:x", retry=RetryPolicy(sleep=skip_sleep))
    agent = Agent(name="lead", engine="elsewhere")

    async with studio.app(engines={"elsewhere": unknown}) as app:
        with pytest.raises(Mistake, match=r"lead uses elsewhere:x, whose price is not known.*limit tokens"):
            await app.run(agent, "go", budget=Budget(usd=1.0))


async def test_a_run_that_takes_too_long_is_over(studio: Studio) -> None:
    studio.agent("lead", says=[{"silent": True}])

    async with studio.app() as app:
        result = await app.run(studio.agents["lead"], "go", budget=Budget(seconds=0.05))

    assert result.error == "lead: the run's budget of 0.05 s is used up"


# Changes during a run


SILENT = {"silent": True}


async def wait_for_turn(run: Run, agent: str) -> None:
    """Wait until an agent's turn has started."""
    with run.entries() as entries:
        async for entry in entries:
            if isinstance(entry.event, TurnStarted) and entry.event.agent == agent:
                return


async def wait_for_reply(run: Run) -> None:
    """Wait until a model has replied."""
    with run.entries() as entries:
        async for entry in entries:
            if isinstance(entry.event, ModelReplied):
                return


async def wait_for_budget_change(run: Run) -> None:
    """Wait until the budget change is on the timeline."""
    with run.entries() as entries:
        async for entry in entries:
            if isinstance(entry.event, BudgetChanged):
                return


async def test_a_raised_limit_holds_at_the_next_call(studio: Studio) -> None:
    studio.agent("lead", says=[{"calls": [{"name": "one"}], "delay": 0.2, "usage": HUNDRED}, "done"])

    async with studio.app() as app, app.start(studio.agents["lead"], "go", budget=Budget(turns=1)) as run:
        await wait_for_turn(run, "lead")
        await run.change_budget(Budget(turns=5), by="a test")
        result = await run.result()

    assert result.text == "done"
    assert studio.events(result, BudgetChanged) == [BudgetChanged(budget=Budget(turns=5), by="a test", channel="api")]


async def test_a_limit_below_what_is_spent_ends_the_run_at_its_next_call_with_what_there_is(studio: Studio) -> None:
    studio.agent("first", says=[{"says": "a draft", "delay": 1.0, "usage": HUNDRED}], handoff="second")
    studio.agent("second", says=["never"])

    async with studio.start("first", "go") as run:
        await wait_for_turn(run, "first")
        await run.change_budget(Budget(tokens=50))
        result = await run.result()

    assert result.error is not None
    assert "the run's budget of 50 tokens is not enough for the next model call: 100 used" in result.error
    assert studio.heard("second") == []
    assert ("first", "a draft") in [(part.agent, part.text) for part in result.parts]


async def test_a_call_that_waits_for_another_is_made_as_soon_as_the_limit_is_raised(studio: Studio) -> None:
    studio.agent("slow", says=[SILENT])
    studio.agent("quick", says=["ok"])
    studio.agent("lead", team=Team(mode="broadcast", members=(Member(agent="slow"), Member(agent="quick"))))
    team = studio.agents.values()

    async with studio.app() as app, app.start(studio.agents["lead"], "go", agents=team, budget=Budget(turns=1)) as run:
        await wait_for_turn(run, "quick")
        await run.change_budget(Budget(turns=2))
        with fail_after(BUDGET_WAIT_SECONDS / 2):
            await wait_for_reply(run)
        await run.stop()
        result = await run.result()

    assert result.usage.calls == 2
    assert ("quick", "ok") in [(part.agent, part.text) for part in result.parts]


async def test_limits_that_a_change_does_not_name_stay(studio: Studio) -> None:
    studio.agent("lead", says=[{"calls": [{"name": "one"}], "delay": 0.2, "usage": HUNDRED}, "never"])

    async with studio.app() as app, app.start(studio.agents["lead"], "go", budget=Budget(turns=1)) as run:
        await wait_for_turn(run, "lead")
        await run.change_budget(Budget(tokens=100_000))
        result = await run.result()

    assert result.error == "lead: the run's budget of 1 model calls is not enough for the next model call: 1 used"


async def test_calls_under_way_count_against_a_limit_that_comes_later(studio: Studio) -> None:
    for name in ("a", "b"):
        studio.agent(name, says=[{"says": "ok", "delay": 0.3}])
    studio.agent("late", says=["never"])
    studio.agent("early", says=[{"says": "now", "delay": 0.1}], handoff="late")
    studio.agent("lead", advisors=["a", "b", "early"])

    async with studio.start("lead", "go") as run:
        await wait_for_turn(run, "early")
        await run.change_budget(Budget(turns=3))
        result = await run.result()

    assert not result.succeeded
    assert studio.heard("late") == []
    assert result.usage.calls == 3


async def test_a_changed_limit_holds_after_a_crash_and_what_was_refused_stays_refused(studio: Studio) -> None:
    studio.agent("greedy", says=[{"calls": [{"name": "one"}], "usage": HUNDRED}, "never"], budget=Budget(turns=1))
    studio.agent("lead", says=[SILENT], advisors=Advisors(agents=("greedy",), require="none"))
    with CancelScope() as scope:
        async with studio.app() as app:
            options: Any = {"agents": studio.agents.values(), "budget": Budget(turns=2)}
            async with app.start(studio.agents["lead"], "go", **options) as run:
                await wait_for_turn(run, "lead")
                await run.change_budget(Budget(turns=1))
                await wait_for_budget_change(run)
                scope.cancel()
                await run.result()

    studio.scripts["lead"] = ["done"]
    result = await studio.resume(run.id)

    assert "the run's budget of 1 model calls" in (result.error or "")
    assert len(studio.heard("greedy")) == 1


async def test_a_budget_change_for_a_paused_run_applies_when_it_is_resumed(studio: Studio) -> None:
    studio.agent("first", says=[{"says": "one", "delay": 0.2}], handoff="second")
    studio.agent("second", says=["two"], handoff="third")
    studio.agent("third", says=["three"])
    async with studio.app() as app:
        options: Any = {"agents": studio.agents.values(), "budget": Budget(turns=2)}
        async with app.start(studio.agents["first"], "go", **options) as run:
            await wait_for_turn(run, "first")
            await run.pause()
            await run.result()
            await run.change_budget(Budget(turns=3))

    result = await studio.resume(run.id)

    assert result.text == "three"


async def test_a_run_out_of_budget_has_ended_and_is_not_resumed(studio: Studio) -> None:
    studio.agent("lead", says=[{"calls": [{"name": "one"}]}, "never"])
    async with studio.app() as app, app.start(studio.agents["lead"], "go", budget=Budget(turns=1)) as run:
        await run.result()

        with pytest.raises(Mistake, match=r"has ended \(failed\)"):
            await run.change_budget(Budget(turns=9))

    with pytest.raises(Mistake, match=r"has ended \(failed\) and cannot be changed"):
        await studio.resume(run.id)


async def test_the_time_limit_can_be_set_and_lowered_while_the_run_works(studio: Studio) -> None:
    studio.agent("lead", says=[SILENT])

    async with studio.start("lead", "go") as run:
        await wait_for_turn(run, "lead")
        await run.change_budget(Budget(seconds=3600))
        await run.change_budget(Budget(seconds=0.001))
        with fail_after(40):
            result = await run.result()

    assert result.error == "lead: the run's budget of 0.001 s is used up"


async def test_a_run_whose_time_limit_was_raised_runs_past_the_first_limit(studio: Studio) -> None:
    studio.agent("lead", says=[{"says": "done", "delay": 2.1}])

    async with studio.app() as app, app.start(studio.agents["lead"], "go", budget=Budget(seconds=2)) as run:
        await wait_for_turn(run, "lead")
        await run.change_budget(Budget(seconds=60))
        result = await run.result()

    assert result.text == "done"


async def test_money_is_not_limited_later_either_where_no_price_is_known(studio: Studio) -> None:
    unknown = ModelEngine(Model(wire=ScriptedWire([SILENT])), name="elsewhere:x", retry=RetryPolicy(sleep=skip_sleep))
    agent = Agent(name="lead", engine="elsewhere")

    async with studio.app(engines={"elsewhere": unknown}) as app, app.start(agent, "go") as run:
        await wait_for_turn(run, "lead")
        with pytest.raises(Mistake, match=r"lead uses elsewhere:x, whose price is not known.*limit tokens"):
            await run.change_budget(Budget(usd=1.0))
        post_to_mailbox(studio.settings.store, run.id, BudgetChanged(budget=Budget(usd=1.0)))
        with fail_after(40), run.entries() as entries:
            async for entry in entries:
                if isinstance(entry.event, Noticed):
                    break

    [notice] = studio.events(run.id, Noticed)
    assert notice.text.startswith("the budget was not changed: lead uses elsewhere:x")
    assert studio.events(run.id, BudgetChanged) == []


async def test_a_budget_of_no_changed_files_is_valid(studio: Studio) -> None:
    studio.agent("lead", says=["done"])

    async with studio.app() as app:
        result = await app.run(studio.agents["lead"], "go", budget=Budget(files_changed=0))

    assert result.text == "done"


@pytest.mark.parametrize("limits", [Budget(usd=-1.0), Budget(tokens=0), Budget(seconds=float("inf"))])
async def test_invalid_limits_are_refused(studio: Studio, limits: Budget) -> None:
    studio.agent("lead", says=[SILENT])

    async with studio.start("lead", "go") as run:
        with pytest.raises(Mistake, match=r"budget \w+ must be a finite number above zero, got"):
            await run.change_budget(limits)
        with pytest.raises(
            Mistake, match=f"budget tokens must be at most {10**12}, got {10**26}; omit it for no limit"
        ):
            await run.change_budget(Budget(tokens=10**26))
