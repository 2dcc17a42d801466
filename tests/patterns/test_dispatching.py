"""Assigned tasks start at once, run in parallel, and never outlive their team."""

from __future__ import annotations

import anyio
import pytest

from podium import Agent, App
from podium.testing import ModelServer
from podium.values.agent import Member, Team
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


@pytest.mark.parametrize(
    "says",
    [
        '{"assignments": [{"worker": "a", "task": "x"}]}',
        'Here you are:\n```json\n{"assignments": [{"worker": "a", "task": "x"}]}\n```',
    ],
)
async def test_a_plan_may_be_an_object_with_its_assignments(studio: Studio, says: str) -> None:
    add_lead(studio, "orchestrate", "a", says=[says, "all"])

    result = await studio.run("lead", "go")

    assert (result.text, len(studio.heard("a"))) == ("all", 1)


async def test_a_direct_answer_in_a_structured_reply_is_shown_without_its_json(studio: Studio) -> None:
    add_lead(studio, "orchestrate", "a", says=['{"assignments": [], "answer": "It is 4."}'])

    result = await studio.run("lead", "What is 2 + 2?")

    assert result.text == "It is 4."


@pytest.mark.parametrize("says", ["[]", '{"assignments": []}', '```json\n{"assignments": [], "answer": " "}\n```'])
async def test_an_empty_list_of_assignments_is_not_an_answer(studio: Studio, says: str) -> None:
    add_lead(studio, "orchestrate", "a", says=[says, plan(("a", "x")), "all"])

    result = await studio.run("lead", "go")

    assert result.text == "all"
    [corrected] = studio.calls[1].messages
    assert "its list of assignments is empty" in corrected.text


async def test_a_server_that_supports_schemas_gets_one_for_plans_and_routes_and_none_for_answers(
    studio: Studio,
) -> None:
    route = '{"agent": "boss", "reason": "work"}'
    scripts = {"r": [route], "l": ['{"assignments": [{"worker": "a", "task": "x"}]}', "all"], "w": ["done"]}
    async with ModelServer(scripts) as server:
        environ = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "x"}
        agents = [
            Agent(name="desk", model="openai:r", router=True, agents=["boss"]),
            Agent(name="boss", model="openai:l", team=Team(mode="orchestrate", members=(Member(agent="a"),))),
            Agent(name="a", model="openai:w"),
        ]
        async with App(studio.settings, environ=environ) as app:
            result = await app.run(agents[0], "go", agents=agents)

    assert result.text == "all"
    assert [one.call.schema is not None for one in server.calls] == [True, True, False, False]
    assert [len(one.call.tools) for one in server.calls[:2]] == [0, 0]
