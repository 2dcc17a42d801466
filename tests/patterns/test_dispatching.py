"""Assigned tasks start at once, run in parallel, and never outlive their team."""

from __future__ import annotations

import anyio

from podium.values.event import Evaluated, ModelReplied, OperationEnded, OperationStarted, ReflectEnded

from ..studio import Studio
from .test_teams import AGAIN, DONE, add_lead, plan


async def test_workers_begin_at_once_and_side_by_side(studio: Studio) -> None:
    names = ["a", "b", "c", "d"]
    for name in names:
        studio.agent(name, says=[{"says": f"{name} is done", "delay": 0.1}])
    add_lead(studio, "orchestrate", *names, says=[plan(*((name, f"part {name}") for name in names)), "the whole"])

    result = await studio.run("lead", "go")

    assert result.text == "the whole"
    entries = studio.entries(result)
    started = [
        entry.seq for entry in entries if isinstance(entry.event, OperationStarted) and entry.event.agent in names
    ]
    first_reply = next(
        entry.seq for entry in entries if isinstance(entry.event, ModelReplied) and entry.operation != "lead"
    )
    assert len(started) == 4
    assert max(started) < first_reply


async def test_an_engine_that_fails_at_the_synthesis_leaves_what_the_workers_said(studio: Studio) -> None:
    failing = {"fails": {"status": 400, "message": "no client"}}
    add_lead(studio, "orchestrate", "a", "b", says=[plan(("a", "x"), ("b", "y")), failing])

    result = await studio.run("lead", "go")

    assert not result.succeeded
    assert result.error is not None
    assert "no client" in result.error
    assert [(part.agent, part.text) for part in result.parts if part.outcome == "succeeded"] == [
        ("a", "a is done"),
        ("b", "b is done"),
    ]


async def test_a_lead_that_plans_only_when_asked_again_still_has_its_work_done_and_judged(studio: Studio) -> None:
    says = ["I will see to it.", plan(("a", "x")), f"one\n{AGAIN}", plan(("a", "y")), f"two\n{DONE}"]
    add_lead(studio, "reflect", "a", says=says)

    result = await studio.run("lead", "go")

    assert [event.is_complete for event in studio.events(result, Evaluated)] == [False, True]
    [ended] = studio.events(result, ReflectEnded)
    assert (ended.end, ended.iterations) == ("goal_met", 2)


async def test_a_lead_learns_before_it_answers_which_assignments_matched_no_worker(studio: Studio) -> None:
    add_lead(studio, "orchestrate", "a", says=[plan(("a", "x"), ("tester", "y")), "the answer"])

    await studio.run("lead", "go")

    assert "About your plan: tester: no worker has that name" in studio.heard("lead")[1]


async def test_a_lead_may_assign_work_to_the_display_names_that_its_routing_uses(studio: Studio) -> None:
    studio.agent("steve-rogers", says=["led"], display_name="Steve Rogers", capabilities=("planning", "reviews"))
    studio.agent("ada", says=["built"], display_name="ADA")
    says = [plan(("Steve Rogers", "lead it"), ("Ada 🔧", "build it")), "the answer"]
    add_lead(studio, "orchestrate", "steve-rogers", "ada", says=says, routing="Plans go to Steve Rogers.")

    result = await studio.run("lead", "go")

    assert [(part.agent, part.text) for part in result.parts] == [("steve-rogers", "led"), ("ada", "built")]
    assert "- steve-rogers, also called Steve Rogers (default model): " in studio.heard("lead")[0]
    assert "Expertise: planning, reviews" in studio.heard("lead")[0]


async def test_a_display_name_of_two_members_is_nobody_s_name(studio: Studio) -> None:
    for name in ("a-1", "a-2"):
        studio.agent(name, says=["done"], display_name="Anna")
    add_lead(studio, "orchestrate", "a-1", "a-2", says=[plan(("Anna", "x"), ("a-2", "y")), "the answer"])

    result = await studio.run("lead", "go")

    assert [part.agent for part in result.parts] == ["a-2"]
    assert "About your plan: Anna: no worker has that name" in studio.heard("lead")[1]


async def test_a_worker_that_timed_out_can_work_in_the_next_iteration(studio: Studio) -> None:
    studio.agent("a", says=[{"says": "at last", "silent": True}])
    says = [plan(("a", "x"), ("b", "y")), f"one\n{AGAIN}", plan(("a", "again")), f"two\n{DONE}"]
    add_lead(studio, "reflect", "a", "b", says=says, worker_timeout=0.8)

    cut = await studio.run("lead", "go")

    outcomes = [event.outcome for event in studio.events(cut, OperationEnded)]
    assert outcomes.count("timed_out") >= 2
    started = [event for event in studio.events(cut, OperationStarted) if event.agent == "a"]
    assert len(started) >= 2


async def test_cancelling_a_team_leaves_nothing_running(studio: Studio) -> None:
    names = ["a", "b", "c"]
    for name in names:
        studio.agent(name, says=[{"says": "never", "silent": True}])
    add_lead(studio, "orchestrate", *names, says=[plan(*((name, f"part {name}") for name in names)), "x"])

    before = len(anyio.get_running_tasks())

    async with studio.start("lead", "go") as run:
        started = 0
        async for entry in run.entries():
            started += isinstance(entry.event, OperationStarted)
            if started == 4:
                await run.stop()
                break
        result = await run.result()

    assert result.outcome == "cancelled"
    assert len(anyio.get_running_tasks()) == before
