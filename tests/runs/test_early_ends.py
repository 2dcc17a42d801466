"""A run that ends early delivers its partial results, in every team mode and whatever the reason."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from anyio import fail_after

from podium import Agent, Result, Run
from podium.runs.run_steering import post_pause
from podium.values.agent import Budget, Member, Team
from podium.values.event import TextStreamed
from podium.values.team_modes import Mode
from podium.values.usage import Usage
from podium.views.run_report import Report, ReportPart

from ..actors import ADA
from ..studio import Studio

End = Callable[[Run], Awaitable[None]]

LARGE_USAGE = Usage(input_tokens=600, output_tokens=400)
PLAN = "@worker:quick look\n@worker:slow listen"
HALF = {"says": "half of it", "pieces": 2, "pace": 3600.0}
"""Half of the reply arrives at once, and the rest only long after the test."""


def add_team(studio: Studio, mode: Mode, *, slow: Any) -> None:
    """Add a team of two: one member finishes at once, and the other says this."""
    studio.agent(
        "quick", says=[{"says": "quick is done", "usage": LARGE_USAGE}, {"says": "again", "usage": LARGE_USAGE}]
    )
    studio.agent("slow", says=[slow, "never"])
    members = (Member(agent="quick"), Member(agent="slow"))
    says = [{"says": PLAN, "usage": Usage(input_tokens=1, output_tokens=1)}, "never", "never"]
    studio.agent("lead", says=says, team=Team(mode=mode, members=members))


async def wait_for_half_reply(run: Run) -> None:
    """Wait until the slow member has sent half of its reply, and the quick one all of it."""
    quick = slow = False
    with run.entries() as entries:
        async for entry in entries:
            quick = quick or (entry.operation == "lead/member:quick#1" and entry.key == entry.operation)
            slow = slow or (entry.operation == "lead/member:slow#1" and isinstance(entry.event, TextStreamed))
            if quick and slow:
                return


async def stop_run(run: Run) -> None:
    await run.stop(by="a test")


async def use_up_time(run: Run) -> None:
    await run.change_budget(Budget(seconds=0.001))


MODES: list[Mode] = ["broadcast", "sequential", "orchestrate", "reflect", "discuss"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("end", "outcome"), [(stop_run, "cancelled"), (use_up_time, "failed")])
async def test_finished_texts_are_delivered_and_unfinished_ones_marked(
    studio: Studio, mode: Mode, end: End, outcome: str
) -> None:
    add_team(studio, mode, slow=HALF)

    async with studio.start("lead", "What do you say?") as run:
        await wait_for_half_reply(run)
        await end(run)
        result = await run.result()

    assert result.outcome == outcome
    delivered = [(part.agent, part.outcome, part.text) for part in result.parts if part.agent != "lead"]
    assert delivered == [("quick", "succeeded", "quick is done"), ("slow", "cancelled", "half ")]
    assert delivered == [(part.agent, part.state, part.text) for part in read_parts(studio, result)]


@pytest.mark.parametrize("mode", MODES)
async def test_a_token_budget_that_runs_out_leaves_what_was_finished(studio: Studio, mode: Mode) -> None:
    # Together they exceed the budget, and the slow one would continue.
    add_team(studio, mode, slow={"calls": [{"name": "one"}], "delay": 0.2, "usage": LARGE_USAGE})

    async with studio.app() as app:
        agents = studio.agents.values()
        result = await app.run(studio.agents["lead"], "go", agents=agents, budget=Budget(tokens=1500))

    delivered = {part.agent: part for part in read_parts(studio, result)}
    assert (delivered["quick"].state, delivered["quick"].text) == ("succeeded", "quick is done")
    assert delivered["slow"].state == "failed"
    assert "the run's budget of 1,500 tokens is not enough" in delivered["slow"].why
    assert ("quick", "quick is done") in [(part.agent, part.text) for part in result.parts]
    assert "slow" in [part.agent for part in result.parts if part.outcome == "failed"]


async def test_a_member_that_did_not_begin_is_reported(studio: Studio) -> None:
    add_team(studio, "sequential", slow=HALF)
    members = (Member(agent="quick"), Member(agent="slow"), Member(agent="quick", name="last"))
    studio.agent("lead", team=Team(mode="sequential", members=members))

    async with studio.start("lead", "go") as run:
        await wait_for_half_reply(run)
        await run.stop()
        result = await run.result()

    states = [(part.agent, part.state) for part in read_parts(studio, result)]
    assert states == [("quick", "succeeded"), ("slow", "cancelled"), ("last", "not_begun")]


async def test_a_silent_member_is_marked_too(studio: Studio) -> None:
    add_team(studio, "broadcast", slow={"silent": True})

    async with studio.app() as app:
        agents = studio.agents.values()
        result = await app.run(studio.agents["lead"], "go", agents=agents, budget=Budget(seconds=1.5))

    assert result.error == "lead: the run's budget of 1.5 s is used up"
    assert [(part.agent, part.outcome, part.text) for part in result.parts] == [
        ("quick", "succeeded", "quick is done"),
        ("slow", "cancelled", ""),
    ]


async def test_of_several_rounds_the_last_finished_text_of_each_member_is_delivered(studio: Studio) -> None:
    studio.agent("quick", says=["first word"])
    studio.agent("slow", says=["slow word"])
    team = Team(mode="discuss", members=(Member(agent="slow"), Member(agent="quick")))
    studio.agent("lead", says=[{"silent": True}], team=team)

    async with studio.start("lead", "go") as run:
        with run.entries() as entries:
            async for entry in entries:
                if entry.operation == "lead" and "turn" in entry.scope:
                    break
        await run.stop()
        result = await run.result()

    assert [(part.agent, part.text) for part in result.parts] == [("slow", "slow word"), ("quick", "first word")]


def read_parts(studio: Studio, result: Result) -> tuple[ReportPart, ...]:
    return Report.from_entries(studio.entries(result)).parts


async def test_a_run_that_is_paused_before_the_work_begins_is_paused(studio: Studio) -> None:
    async with studio.app() as app:
        driver = await app.runs.create(Agent(name="solo", engine="scripted"), "go", {}, by=ADA)
        await driver.timeline.wait_written()
        post_pause(app.settings.store, driver.id, by=ADA)
        await driver.deliver()
        with fail_after(40):
            result = await driver.run()

    assert result.outcome == "paused"
    assert studio.calls == []
