from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from podium.core.session import Reply
from podium.patterns.router import parse_choice
from podium.values.agent import Router
from podium.values.event import Routed, RouteRefused

from ..studio import Studio


def routes_to(agent: str, reason: str = "it fits") -> dict[str, Any]:
    return {"calls": [{"name": "route_to", "arguments": {"agent": agent, "reason": reason}}]}


@pytest.fixture
def desk(studio: Studio) -> Studio:
    """A studio with two departments behind a reception that a test has yet to write."""
    studio.agent("billing", says=["paid"], description="Invoices and refunds.")
    studio.agent("support", says=["fixed"], description="Things that do not work.")
    return studio


async def test_the_chosen_agent_answers_instead_of_the_router(desk: Studio) -> None:
    desk.agent("reception", says=[routes_to("billing", "money")], router=True, agents=["billing", "support"])

    result = await desk.run("reception", "I want my money back")

    assert result.text == "paid"
    assert desk.events(result, Routed) == [Routed(agent="billing", reason="money")]
    assert desk.heard("support") == []


async def test_the_destination_gets_the_request_verbatim_and_the_reason_as_context(desk: Studio) -> None:
    desk.agent("reception", says=[routes_to("billing", "money\nmatters")], router=True, agents=["billing"])

    await desk.run("reception", "I want my money back")

    assert desk.heard("billing") == ["I want my money back\n\n[context: routed by reception]\n> money\n> matters"]


async def test_the_tool_lists_the_destinations_with_what_they_are_for(desk: Studio) -> None:
    desk.agent("reception", says=[routes_to("billing")], router=True, agents=["billing", "support"])

    await desk.run("reception", "help")

    [tool] = desk.calls[0].tools
    assert tool.name == "route_to"
    assert tool.parameters["properties"]["agent"]["enum"] == ["billing", "support"]
    assert "- billing: Invoices and refunds." in tool.description


async def test_a_router_with_turns_and_tools_may_look_before_it_chooses(desk: Studio, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("invoices go to billing")
    looks = {"calls": [{"name": "read_file", "arguments": {"path": "notes.txt"}}]}
    router = Router(destinations=("billing", "support"), max_turns=2)
    desk.agent("reception", says=[looks, routes_to("billing")], router=router, tools=["Read"])

    async with desk.app() as app:
        result = await app.run(desk.agents["reception"], "help", repo=tmp_path, agents=desk.agents.values())

    assert result.text == "paid"
    assert [tool.name for tool in desk.calls[0].tools] == ["route_to", "read_file"]
    assert "invoices go to billing" in desk.calls[1].messages[-1].text


async def test_a_router_of_one_turn_has_its_one_tool_only(desk: Studio, tmp_path: Path) -> None:
    desk.agent("reception", says=[routes_to("billing")], router=True, agents=["billing"], tools=["Read"])

    async with desk.app() as app:
        await app.run(desk.agents["reception"], "help", repo=tmp_path, agents=desk.agents.values())

    assert [tool.name for tool in desk.calls[0].tools] == ["route_to"]


async def test_a_json_object_routes_as_well_as_the_tool(desk: Studio) -> None:
    said = 'Clearly:\n```json\n{"agent": "support", "reason": "broken"}\n```'
    desk.agent("reception", says=[said], router=True, agents=["billing", "support"])

    result = await desk.run("reception", "it is broken")

    assert result.text == "fixed"
    assert desk.events(result, Routed)[0].reason == "broken"


async def test_a_choice_outside_the_list_is_answered_with_the_list_and_may_be_mended(desk: Studio) -> None:
    desk.agent("reception", says=[routes_to("sales"), routes_to("support")], router=True, agents=["billing", "support"])

    result = await desk.run("reception", "help")

    assert result.text == "fixed"
    assert desk.events(result, RouteRefused) == [RouteRefused(chosen="sales", destinations=("billing", "support"))]
    second = desk.calls[1].messages
    assert [message.role for message in second] == ["user", "assistant", "tool", "user"]
    assert "'sales' is none of the destinations, which are billing, support." in second[2].text


async def test_two_corrections_are_all_a_router_gets(desk: Studio) -> None:
    desk.agent(
        "reception", says=[routes_to("sales"), "hm", routes_to("void")], router=True, agents=["billing", "support"]
    )

    result = await desk.run("reception", "help")

    assert result.outcome == "failed"
    assert result.error == (
        "reception: routing failed: 'void' is none of the destinations, which are billing, support."
    )
    assert len(desk.events(result, RouteRefused)) == 3
    assert len(desk.heard("reception")) == 3


async def test_the_fallback_answers_when_nobody_was_chosen(desk: Studio) -> None:
    router = Router(destinations=("billing",), fallback="support")
    desk.agent("reception", says=["no idea", "none", "sorry"], router=router)

    result = await desk.run("reception", "help")

    assert result.text == "fixed"
    assert desk.events(result, Routed)[0].is_fallback


async def test_a_router_whose_model_fails_fails_and_does_not_fall_back(desk: Studio) -> None:
    router = Router(destinations=("billing",), fallback="support")
    desk.agent("reception", says=[{"fails": {"status": 401, "message": "bad key"}}], router=router)

    result = await desk.run("reception", "help")

    assert result.outcome == "failed"
    assert desk.heard("support") == []


async def test_a_failing_destination_is_named_in_the_error(desk: Studio) -> None:
    desk.agent("reception", says=[routes_to("broken")], router=True, agents=["broken"])
    desk.agent("broken", says=[{"fails": {"status": 400, "message": "out of paper"}}])

    result = await desk.run("reception", "help")

    assert result.error is not None
    assert result.error.startswith("broken: ")
    assert "out of paper" in result.error


async def test_routing_is_counted_with_the_answer_and_once(desk: Studio) -> None:
    desk.agent("reception", says=[routes_to("billing")], router=True, agents=["billing"])

    result = await desk.run("reception", "help")

    assert (result.usage.calls, result.usage.tool_calls) == (2, 1)


@pytest.mark.parametrize(
    ("text", "agent"),
    [
        ('{"agent": "a", "reason": ""}', "a"),
        ('{"not": 1} then {"agent": "b"}', "b"),
        ('{"agent": 7} {"agent": " c "}', "c"),
        ("{" * 5000, ""),
        ("route_to(a)", ""),
        ("", ""),
    ],
)
def test_a_choice_is_found_wherever_it_stands_in_the_text(text: str, agent: str) -> None:
    assert parse_choice(Reply(text=text)).agent == agent
