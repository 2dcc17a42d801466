from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from podium.core.session import Reply
from podium.engines.model.model_wire import Model, add_zero_cost
from podium.engines.model.tool_loop import ModelEngine
from podium.engines.script import ScriptedWire
from podium.patterns.router import parse_choice
from podium.store.fault_injection import refuse_after
from podium.testing import Move, calls
from podium.values.agent import Router
from podium.values.event import Routed, RouteRefused
from podium.values.model_abilities import ModelAbilities

from ..studio import Studio


def routes_to(agent: str, reason: str = "it fits") -> Move:
    return calls("route_to", agent=agent, reason=reason)


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
        "I want my money back\n\n[context for you only: why you were chosen for this request]\n> money\n> matters"
    ]


async def test_a_router_that_only_chooses_answers_with_its_choice(routing_studio: Studio) -> None:
    router = Router(destinations=("billing", "support"), is_choice_only=True)
    routing_studio.agent("reception", says=[routes_to("billing", "money")], router=router)

    result = await routing_studio.run("reception", "I want my money back")

    assert result.text == "billing: money"
    assert routing_studio.events(result, Routed) == [Routed(agent="billing", reason="money")]
    assert routing_studio.heard("billing") == []


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


ROUTE = '{"name": "route_to", "arguments": {"agent": "support", "reason": "not billing"}}'


@pytest.mark.parametrize("abilities", [ModelAbilities(), ModelAbilities(native_calls=False, json_schema=False)])
@pytest.mark.parametrize(
    "written",
    [
        ROUTE,
        f"<tool_call>\n{ROUTE}\n</tool_call>",
        f"It does not turn on.\n<tool_call>{ROUTE}</tool_call>",
        '{"name": "route_to", "arguments": "{\\"agent\\": \\"support\\", \\"reason\\": \\"not billing\\"}"}',
        "<tool_call><function=route_to>\n<parameter=agent>\nsupport\n</parameter>\n</function></tool_call>",
        ROUTE[:-1],
        str(msgspec.json.decode(ROUTE)),
        'route_to(agent="support", reason="not billing")',
        '{"name": "route_to", "arguments": {"reason": "not billing", "destination": "support"}}',
    ],
)
async def test_a_call_that_the_model_writes_as_text_routes(
    routing_studio: Studio, abilities: ModelAbilities, written: str
) -> None:
    wire = ScriptedWire({"reception": [written]})
    engine = ModelEngine(Model(wire=wire, add_cost=add_zero_cost, abilities=abilities), name="mine")
    routing_studio.agent("reception", engine="mine", router=True, agents=["billing", "support"])

    async with routing_studio.app(engines={"mine": engine}) as app:
        agents = routing_studio.agents
        result = await app.run(agents["reception"], "it is broken", agents=agents.values())

    assert result.text == "fixed"
    assert len(wire.heard) == 1


@pytest.mark.parametrize("takes_schema", [True, False])
async def test_the_prompt_asks_for_the_tool_only_if_the_model_is_offered_it(
    routing_studio: Studio, takes_schema: bool
) -> None:
    wire = ScriptedWire({"reception": ['{"agent": "support", "reason": ""}']})
    abilities = ModelAbilities(json_schema=takes_schema)
    engine = ModelEngine(Model(wire=wire, add_cost=add_zero_cost, abilities=abilities), name="mine")
    routing_studio.agent("reception", engine="mine", router=True, agents=["billing", "support"])

    async with routing_studio.app(engines={"mine": engine}) as app:
        agents = routing_studio.agents
        await app.run(agents["reception"], "it is broken", agents=agents.values())

    assert ("route_to" in wire.heard[0].messages[-1].text) is not takes_schema
    assert 'only this JSON: {"agent": "NAME"' in wire.heard[0].messages[-1].text


async def test_a_choice_outside_the_list_is_answered_with_the_list_and_may_be_corrected(routing_studio: Studio) -> None:
    routing_studio.agent(
        "reception", says=[routes_to("sales"), routes_to("support")], router=True, agents=["billing", "support"]
    )

    result = await routing_studio.run("reception", "help")

    assert result.text == "fixed"
    assert routing_studio.events(result, RouteRefused) == [
        RouteRefused(chosen="sales", destinations=("billing", "support"))
    ]
    [corrected] = routing_studio.calls[1].messages
    assert corrected.text.startswith(routing_studio.calls[0].messages[0].text)
    assert "'sales' is not one of the destinations: billing, support." in corrected.text


async def test_corrections_are_worded_differently_and_the_invalid_replies_are_not_in_view(
    routing_studio: Studio,
) -> None:
    routing_studio.agent("reception", says=["one", "two", "support"], router=True, agents=["billing", "support"])

    result = await routing_studio.run("reception", "help")

    assert result.text == "fixed"
    first, second, third = (call.messages for call in routing_studio.calls if call.agent == "reception")
    assert [len(messages) for messages in (first, second, third)] == [1, 1, 1]
    assert third[0].text.startswith(second[0].text)
    assert third[0].text.removeprefix(second[0].text) != second[0].text.removeprefix(first[0].text)


async def test_a_router_that_dies_before_its_correction_goes_on_without_the_invalid_reply(
    routing_studio: Studio,
) -> None:
    routing_studio.agent("reception", says=["hm", routes_to("support")], router=True, agents=["billing", "support"])
    whole = await routing_studio.run("reception", "help")
    refused = routing_studio.kinds(whole).index("route_refused") + 1

    died = await routing_studio.run("reception", "help", fault=refuse_after(refused))
    routing_studio.expire_leases()
    routing_studio.calls.clear()
    result = await routing_studio.resume(died.run_id)

    assert (died.outcome, result.text) == ("interrupted", "fixed")
    [asked, _] = routing_studio.calls
    assert [message.role for message in asked.messages] == ["user"]
    assert "No destination was chosen" in asked.messages[0].text


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
