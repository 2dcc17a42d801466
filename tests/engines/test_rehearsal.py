from __future__ import annotations

import pytest

from podium import App
from podium.core.engine import Text, Tool, ToolAnswer
from podium.core.scope import Scope
from podium.engines.model.model_wire import Message, ModelCall, ReplyEnd, ReplyPart, ToolCallPart
from podium.engines.rehearsal import LABEL, RehearsalWire
from podium.values.agent import Agent, Budget, Member, Team
from podium.values.event import (
    DecisionCommitted,
    ModelReplied,
    OperationStarted,
    PlanStepCompleted,
    PlanStepHandedOver,
    ToolUse,
)

from ..studio import Studio

DESTINATIONS = {
    "billing": "Answers questions about invoices and payments",
    "support": "Repairs broken accounts, and the login",
    "sales": "Quotes prices for new customers",
}


async def fail_if_called(use: ToolUse, scope: Scope) -> ToolAnswer:
    raise NotImplementedError


def make_route_tool(destinations: dict[str, str]) -> Tool:
    return Tool(
        name="route_to",
        description="Choose who answers.\n" + "\n".join(f"- {name}: {text}" for name, text in destinations.items()),
        parameters={
            "type": "object",
            "properties": {"agent": {"type": "string", "enum": list(destinations)}, "reason": {"type": "string"}},
            "required": ["agent", "reason"],
        },
        answer=fail_if_called,
    )


async def rehearse(*messages: Message, tools: tuple[Tool, ...] = ()) -> list[ReplyPart]:
    call = ModelCall(agent="desk", model="", system="You are the desk.", messages=messages, tools=tools)
    return [part async for part in RehearsalWire().stream(call)]


async def choose_route(request: str, destinations: dict[str, str] = DESTINATIONS) -> ToolUse:
    parts = await rehearse(Message(role="user", text=request), tools=(make_route_tool(destinations),))
    [called] = [part.call for part in parts if isinstance(part, ToolCallPart)]
    return called


async def test_a_reply_is_labelled_names_the_agent_and_restates_the_request() -> None:
    parts = await rehearse(Message(role="user", text="\nShip it.\nAnd more."))

    [said] = [part.text for part in parts if isinstance(part, Text)]
    assert said.startswith(f"{LABEL} desk was asked: Ship it.\n")
    assert "No model was called" in said
    assert "And more" not in said


async def test_a_long_request_is_cut() -> None:
    parts = await rehearse(Message(role="user", text="x" * 1000))

    [said] = [part.text for part in parts if isinstance(part, Text)]
    assert said.splitlines()[0] == f"{LABEL} desk was asked: {'x' * 119}…"


async def test_the_same_call_gets_the_same_bytes() -> None:
    message = Message(role="user", text="repair the login")

    assert await rehearse(message, tools=(make_route_tool(DESTINATIONS),)) == await rehearse(
        message, tools=(make_route_tool(DESTINATIONS),)
    )


async def test_a_script_in_the_prompt_is_ignored_so_that_the_label_is_always_there() -> None:
    parts = await rehearse(Message(role="user", text='```script\n["forged"]\n```'))

    assert isinstance(parts[0], Text)
    assert parts[0].text.startswith(LABEL)


async def test_the_route_goes_to_the_description_with_most_words_in_common() -> None:
    chosen = await choose_route("The LOGIN of my account is broken")

    assert chosen.name == "route_to"
    assert chosen.arguments == {
        "agent": "support",
        "reason": f"{LABEL} words in common with the request: broken, login",
    }


async def test_common_words_do_not_count() -> None:
    assert (await choose_route("what are the prices for this")).arguments["agent"] == "sales"


async def test_between_equal_descriptions_the_first_is_chosen() -> None:
    assert (await choose_route("something else entirely")).arguments["agent"] == "billing"


async def test_a_name_decides_between_equal_descriptions() -> None:
    assert (await choose_route("ask sales")).arguments["agent"] == "sales"


async def test_a_name_with_a_colon_keeps_its_own_description() -> None:
    assert (await choose_route("tea", {"a": "coffee", "a: b": "tea"})).arguments["agent"] == "a: b"


async def test_a_route_that_was_answered_is_not_chosen_again() -> None:
    parts = await rehearse(
        Message(role="user", text="login"),
        Message(role="assistant", text="", calls=(ToolUse(id="1", name="route_to"),)),
        Message(role="tool", text="routed", answers="1"),
        tools=(make_route_tool(DESTINATIONS),),
    )

    assert [type(part) for part in parts] == [Text, ReplyEnd]


async def test_it_asks_every_agent_that_it_may_call_once(studio: Studio) -> None:
    studio.agent("lead", engine="rehearsal", agents=["builder", "tester"])
    studio.agent("builder", engine="rehearsal")
    studio.agent("tester", engine="rehearsal")

    result = await studio.run("lead", "build a birdhouse")

    assert result.text.startswith("[rehearsed] lead was asked: build a birdhouse")
    assert [event.agent for event in studio.events(result, OperationStarted)] == ["lead", "builder", "tester"]


async def test_a_collaborating_team_is_rehearsed_from_plan_to_report(studio: Studio) -> None:
    team = Team(mode="collaborate", members=(Member(agent="ada"), Member(agent="rex", role="reviewer")))
    lead = Agent(name="lead", engine="model", model="rehearsal", team=team)
    members = [Agent(name=name, engine="model", model="rehearsal") for name in ("ada", "rex")]

    async with App(studio.settings, environ={}) as app:
        result = await app.run(lead, "ship it", agents=members)

    assert result.text.startswith(f"{LABEL} report on: ship it")
    assert [one.how for one in studio.events(result, DecisionCommitted)] == ["majority"]
    assert [(one.step, one.owner) for one in studio.events(result, PlanStepCompleted)] == [("s1", "ada")]


async def test_a_member_whose_instructions_say_so_hands_its_step_over(studio: Studio) -> None:
    team = Team(mode="collaborate", members=(Member(agent="ada"), Member(agent="bob"), Member(agent="cem")))
    prompts = {"ada": "You build.", "bob": "You test. Hand the step to ada.", "cem": "You read."}
    members = [Agent(name=name, engine="model", model="rehearsal", prompt=prompt) for name, prompt in prompts.items()]

    async with App(studio.settings, environ={}) as app:
        result = await app.run(
            Agent(name="lead", engine="model", model="rehearsal", team=team), "ship it", agents=members
        )

    [handed] = studio.events(result, PlanStepHandedOver)
    assert (handed.step, handed.sender, handed.receiver) == ("s2", "bob", "ada")
    assert len(studio.events(result, PlanStepCompleted)) == 4


async def test_its_calls_are_no_model_calls(studio: Studio) -> None:
    studio.agent("lead", engine="rehearsal", agents=["builder"])
    studio.agent("builder", engine="rehearsal")

    result = await studio.run("lead", "build a birdhouse")

    replies = [event.usage for event in studio.events(result, ModelReplied)]
    assert [(one.calls, one.tokens, one.rehearsed_calls) for one in replies] == [(0, 0, 1)] * 3
    assert (result.usage.calls, result.usage.tokens, result.usage.rehearsed_calls) == (0, 0, 3)
    assert result.usage.rehearsed_input_tokens == sum(one.rehearsed_input_tokens for one in replies) > 0
    assert result.usage.tool_calls == 1


@pytest.mark.parametrize("budget", [Budget(turns=2), Budget(turns=2, usd=1.0)])
async def test_a_rehearsal_shows_where_a_limit_would_stop_the_run(studio: Studio, budget: Budget) -> None:
    studio.agent("lead", engine="rehearsal", agents=["builder"], budget=budget)
    studio.agent("builder", engine="rehearsal")

    result = await studio.run("lead", "build a birdhouse")

    assert not result.succeeded
    assert "lead's budget of 2 model calls" in (result.error or "")
