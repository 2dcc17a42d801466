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
def routing_studio(studio: Studio) -> Studio:
    """Make a studio with two departments; each test adds the router in front of them."""
    studio.agent("billing", says=["paid"], description="Invoices and refunds.")
    studio.agent("support", says=["fixed"], description="Things that do not work.")
    return studio


async def test_the_chosen_agent_answers_instead_of_the_router(routing_studio: Studio) -> None:
    routing_studio.agent("reception", says=[routes_to("billing", "money")], router=True, agents=["billing", "support"])

    result = await routing_studio.run("reception", "I want my money back")

    assert result.text == "paid"
    assert routing_studio.events(result, Routed) == [Routed(agent="billing", reason="money")]
    assert routing_studio.heard("support") == []


async def test_the_destination_gets_the_request_verbatim_and_the_reason_as_context(routing_studio: Studio) -> None:
    routing_studio.agent("reception", says=[routes_to("billing", "money\nmatters")], router=True, agents=["billing"])

    await routing_studio.run("reception", "I want my money back")

    assert routing_studio.heard("billing") == [
        "I want my money back\n\n[context: routed by reception]\n> money\n> matters"
    ]


async def test_the_tool_lists_the_destinations_with_what_they_are_for(routing_studio: Studio) -> None:
    routing_studio.agent("reception", says=[routes_to("billing")], router=True, agents=["billing", "support"])

    await routing_studio.run("reception", "help")

    [tool] = routing_studio.calls[0].tools
    assert tool.name == "route_to"
    assert tool.parameters["properties"]["agent"]["enum"] == ["billing", "support"]
    assert "- billing: Invoices and refunds." in tool.description


async def test_a_router_with_turns_and_tools_may_look_before_it_chooses(routing_studio: Studio, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("invoices go to billing")
    looks = {"calls": [{"name": "read_file", "arguments": {"path": "notes.txt"}}]}
    router = Router(destinations=("billing", "support"), max_turns=2)
    routing_studio.agent("reception", says=[looks, routes_to("billing")], router=router, tools=["Read"])

    async with routing_studio.app() as app:
        result = await app.run(
            routing_studio.agents["reception"], "help", repo=tmp_path, agents=routing_studio.agents.values()
        )

    assert result.text == "paid"
    assert [tool.name for tool in routing_studio.calls[0].tools] == ["route_to", "read_file"]
    assert "invoices go to billing" in routing_studio.calls[1].messages[-1].text


async def test_a_router_of_one_turn_has_its_one_tool_only(routing_studio: Studio, tmp_path: Path) -> None:
    routing_studio.agent("reception", says=[routes_to("billing")], router=True, agents=["billing"], tools=["Read"])

    async with routing_studio.app() as app:
        await app.run(routing_studio.agents["reception"], "help", repo=tmp_path, agents=routing_studio.agents.values())

    assert [tool.name for tool in routing_studio.calls[0].tools] == ["route_to"]


async def test_a_json_object_routes_as_well_as_the_tool(routing_studio: Studio) -> None:
    said = 'Clearly:\n```json\n{"agent": "support", "reason": "broken"}\n```'
    routing_studio.agent("reception", says=[said], router=True, agents=["billing", "support"])

    result = await routing_studio.run("reception", "it is broken")

    assert result.text == "fixed"
    assert routing_studio.events(result, Routed)[0].reason == "broken"


async def test_a_choice_outside_the_list_is_answered_with_the_list_and_may_be_corrected(routing_studio: Studio) -> None:
    routing_studio.agent(
        "reception", says=[routes_to("sales"), routes_to("support")], router=True, agents=["billing", "support"]
    )

    result = await routing_studio.run("reception", "help")

    assert result.text == "fixed"
    assert routing_studio.events(result, RouteRefused) == [
        RouteRefused(chosen="sales", destinations=("billing", "support"))
    ]
    second = routing_studio.calls[1].messages
    assert [message.role for message in second] == ["user", "assistant", "tool", "user"]
    assert "'sales' is not one of the destinations: billing, support." in second[2].text


async def test_two_corrections_are_all_a_router_gets(routing_studio: Studio) -> None:
    routing_studio.agent(
        "reception", says=[routes_to("sales"), "hm", routes_to("void")], router=True, agents=["billing", "support"]
    )

    result = await routing_studio.run("reception", "help")

    assert result.outcome == "failed"
    assert result.error == ("reception: routing failed: 'void' is not one of the destinations: billing, support.")
    assert len(routing_studio.events(result, RouteRefused)) == 3
    assert len(routing_studio.heard("reception")) == 3


async def test_the_fallback_answers_when_no_agent_was_chosen(routing_studio: Studio) -> None:
    router = Router(destinations=("billing",), fallback="support")
    routing_studio.agent("reception", says=["no idea", "none", "sorry"], router=router)

    result = await routing_studio.run("reception", "help")

    assert result.text == "fixed"
    assert routing_studio.events(result, Routed)[0].is_fallback


async def test_a_router_whose_model_fails_fails_and_does_not_fall_back(routing_studio: Studio) -> None:
    router = Router(destinations=("billing",), fallback="support")
    routing_studio.agent("reception", says=[{"fails": {"status": 401, "message": "bad key"}}], router=router)

    result = await routing_studio.run("reception", "help")

    assert result.outcome == "failed"
    assert routing_studio.heard("support") == []


async def test_a_failing_destination_is_named_in_the_error(routing_studio: Studio) -> None:
    routing_studio.agent("reception", says=[routes_to("broken")], router=True, agents=["broken"])
    routing_studio.agent("broken", says=[{"fails": {"status": 400, "message": "out of paper"}}])

    result = await routing_studio.run("reception", "help")

    assert result.error is not None
    assert result.error.startswith("broken: ")
    assert "out of paper" in result.error


async def test_routing_is_counted_with_the_answer_and_once(routing_studio: Studio) -> None:
    routing_studio.agent("reception", says=[routes_to("billing")], router=True, agents=["billing"])

    result = await routing_studio.run("reception", "help")

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
def test_a_choice_is_found_anywhere_in_the_text(text: str, agent: str) -> None:
    assert parse_choice(Reply(text=text)).agent == agent
