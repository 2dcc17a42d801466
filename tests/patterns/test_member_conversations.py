"""Members that get one task after another: which conversation each task continues."""

from __future__ import annotations

import pytest

from podium.engines.model.model_wire import Model, add_zero_cost
from podium.engines.model.tool_loop import ModelEngine
from podium.store.fault_injection import refuse_after
from podium.values.event import ContextCompacted

from ..engines.test_tool_loop import LONG, OrderedWire
from ..studio import Studio
from .test_teams import AGAIN, DONE, add_lead, plan


def list_user_messages(studio: Studio, agent: str) -> list[int]:
    """Return how many messages of the user each call of an agent had."""
    calls = [call for call in studio.calls if call.agent == agent]
    return [[message.role for message in call.messages].count("user") for call in calls]


async def test_a_member_with_another_task_goes_on_with_its_own_conversation(studio: Studio) -> None:
    studio.agent("a", says=["the draft", "the final text"])
    says = [plan(("a", "draft"), ("b", "look")), f"half\n{AGAIN} more", plan(("a", "finish"), ("b", "look again"))]
    add_lead(studio, "reflect", "a", "b", says=[*says, f"whole\n{DONE}"])

    result = await studio.run("lead", "go")

    assert result.text == "whole"
    assert list_user_messages(studio, "a") == list_user_messages(studio, "b") == [1, 2]
    second = [call for call in studio.calls if call.agent == "a"][1]
    assert [message.text for message in second.messages][1] == "the draft"
    assert result.parts[0].text == "the final text"


async def test_the_conversation_of_a_member_is_compacted_from_task_to_task(studio: Studio) -> None:
    wire = OrderedWire([LONG, "a summary", "second", "third"])
    small = ModelEngine(Model(wire=wire, name="m", add_cost=add_zero_cost, window=lambda: 12_000), name="small")
    studio.agent("a", engine="small", prompt="You write.")
    tasks = ((plan(("a", f"task {word}")), f"synthesis {word} of three\n{AGAIN} more") for word in ("one", "two"))
    says = [text for pair in tasks for text in pair] + [plan(("a", "task three")), f"whole\n{DONE}"]
    add_lead(studio, "reflect", "a", says=says)

    async with studio.app(engines={"small": small}) as app:
        result = await app.run(studio.agents["lead"], "go", agents=studio.agents.values())

    assert (result.text, result.parts[0].text) == ("whole", "third")
    [compacted] = studio.events(result, ContextCompacted)
    last = [message.text for message in wire.calls[-1].messages]
    assert compacted.summary in last[0]
    assert LONG not in "".join(last)
    assert last[-2] == "second"
    assert "task three" in last[-1]


async def test_each_task_begins_a_new_conversation_where_the_team_says_so(studio: Studio) -> None:
    says = [plan(("a", "draft")), f"half\n{AGAIN} more", plan(("a", "finish")), f"whole\n{DONE}"]
    add_lead(studio, "reflect", "a", says=says, fresh=True)

    await studio.run("lead", "go")

    assert list_user_messages(studio, "a") == [1, 1]


async def test_the_judge_of_each_iteration_begins_anew(studio: Studio) -> None:
    studio.agent("judge", says=["SCORE: 0.5\nRATIONALE: thin"])
    says = [plan(("a", "draft")), "half", plan(("a", "finish")), "whole"]
    add_lead(studio, "reflect", "a", says=says, evaluator="judge", max_iterations=2)

    await studio.run("lead", "go")

    assert list_user_messages(studio, "judge") == [1, 1]


async def test_a_run_from_before_conversations_were_continued_resumes_as_it_was(
    studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    says = [plan(("a", "draft")), f"half\n{AGAIN} more", plan(("a", "finish")), f"whole\n{DONE}"]
    add_lead(studio, "reflect", "a", says=says)
    with monkeypatch.context() as before:
        before.setattr("podium.runs.runs.apply_team_defaults", lambda agent: agent)
        run = await studio.run("lead", "go", fault=refuse_after(12))
    studio.expire_leases()

    result = await studio.resume(run.run_id)

    assert (run.outcome, result.text) == ("interrupted", "whole")
    assert list_user_messages(studio, "a") == [1, 1]
