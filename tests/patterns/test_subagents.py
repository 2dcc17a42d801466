from __future__ import annotations

from typing import Any

from anyio import CancelScope

from podium.values.event import OperationEnded, OperationStarted, ToolAnswered, TurnStarted
from podium.views.run_state.tree import RunView

from ..studio import Studio


def calls(*asked: tuple[str, str]) -> dict[str, Any]:
    return {"calls": [{"name": name, "arguments": {"request": request}} for name, request in asked]}


async def test_an_agent_calls_another_and_goes_on_with_what_it_said(studio: Studio) -> None:
    studio.agent("builder", says=["built"], description="Builds.")
    studio.agent("lead", says=[calls(("builder", "build it")), "it is built"], agents=["builder"])

    result = await studio.run("lead", "ship it")

    assert result.text == "it is built"
    assert studio.heard("builder") == ["build it"]
    assert [event.text for event in studio.events(result, ToolAnswered)] == ["built"]
    assert [event.trigger for event in studio.events(result, OperationStarted)] == ["request", "tool"]
    [tool] = studio.calls[0].tools
    assert (tool.name, tool.description) == ("builder", "Builds.")


async def test_several_calls_at_once_run_side_by_side(studio: Studio) -> None:
    for name in ("a", "b"):
        studio.agent(name, says=[{"says": name, "delay": 1}])
    studio.agent("lead", says=[calls(("a", "x"), ("b", "y"), ("a", "z")), "done"], agents=["a", "b"])

    result = await studio.run("lead", "go")

    assert result.usage.seconds < 2
    answers = [message.text for message in studio.calls[-1].messages if message.role == "tool"]
    assert answers == ["a", "b", "a"]
    assert sorted(studio.heard("a")) == ["x", "z"]


async def test_a_sub_agent_that_fails_is_a_tool_that_failed(studio: Studio) -> None:
    studio.agent("builder", says=[{"fails": {"status": 400, "message": "no bricks"}}])
    studio.agent("lead", says=[calls(("builder", "build it"), ("builder", " ")), "never mind"], agents=["builder"])

    result = await studio.run("lead", "ship it")

    assert result.text == "never mind"
    failed, empty = sorted(studio.events(result, ToolAnswered), key=lambda event: "needs" in event.text)
    assert failed.is_error
    assert "no bricks" in failed.text
    assert empty.text.startswith("builder needs a request")


async def test_a_sub_agent_may_have_advisors_and_a_chain_of_its_own(studio: Studio) -> None:
    studio.agent("lead", says=[calls(("draft", "write")), "done"], tools=["Agent(draft)"])
    studio.agent("draft", says=["a draft"], advisors=["hint"], handoff="editor")
    studio.agent("hint", says=["be brief"])
    studio.agent("editor", says=["the final text"])

    result = await studio.run("lead", "go")

    assert studio.calls[-1].messages[-1].text == "the final text"
    run_view = RunView.from_entries(studio.entries(result))
    assert run_view.root is not None
    assert [(node.agent, node.trigger) for node in run_view.root.walk()] == [
        ("lead", "request"),
        ("draft", "tool"),
        ("hint", "advice"),
        ("editor", "handoff"),
    ]
    assert run_view.usage.calls == 5


async def test_a_resumed_run_calls_no_sub_agent_again(studio: Studio) -> None:
    studio.agent("quick", says=["here"])
    studio.agent("slow", says=[{"silent": True}])
    studio.agent("lead", says=[calls(("quick", "a"), ("slow", "b")), "done"], agents=["quick", "slow"])
    with CancelScope() as scope:
        async with studio.start("lead", "go") as run:
            seen: set[type] = set()
            async for entry in run.entries():
                seen |= {type(entry.event)} if "slow" in entry.scope or "quick" in entry.scope else set()
                if {TurnStarted, OperationEnded} <= seen:
                    break
            scope.cancel()
            await run.result()

    studio.scripts["slow"] = ["at last"]
    result = await studio.resume(run.id)

    assert result.text == "done"
    assert len(studio.heard("quick")) == 1
    assert [message.text for message in studio.calls[-1].messages if message.role == "tool"] == ["here", "at last"]
