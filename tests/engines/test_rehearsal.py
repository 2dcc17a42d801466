from __future__ import annotations

from podium.core.engine import Text, Tool, ToolAnswer
from podium.core.scope import Scope
from podium.engines.model.model_wire import Message, ModelCall, ReplyEnd, ReplyPart, ToolCallPart
from podium.engines.rehearsal import LABEL, RehearsalWire
from podium.values.event import OperationStarted, ToolUse

from ..studio import Studio

DESTINATIONS = {
    "billing": "Answers questions about invoices and payments",
    "support": "Repairs broken accounts, and the login",
    "sales": "Quotes prices for new customers",
}


async def never(use: ToolUse, scope: Scope) -> ToolAnswer:
    raise NotImplementedError


def route_to(destinations: dict[str, str]) -> Tool:
    return Tool(
        name="route_to",
        description="Choose who answers.\n" + "\n".join(f"- {name}: {text}" for name, text in destinations.items()),
        parameters={
            "type": "object",
            "properties": {"agent": {"type": "string", "enum": list(destinations)}, "reason": {"type": "string"}},
            "required": ["agent", "reason"],
        },
        answer=never,
    )


async def rehearse(*messages: Message, tools: tuple[Tool, ...] = ()) -> list[ReplyPart]:
    call = ModelCall(agent="desk", model="", system="You are the desk.", messages=messages, tools=tools)
    return [heard async for heard in RehearsalWire().stream(call)]


async def route(request: str, destinations: dict[str, str] = DESTINATIONS) -> ToolUse:
    heard = await rehearse(Message(role="user", text=request), tools=(route_to(destinations),))
    [called] = [piece.call for piece in heard if isinstance(piece, ToolCallPart)]
    return called


async def test_a_reply_is_labelled_names_the_agent_and_restates_the_request() -> None:
    heard = await rehearse(Message(role="user", text="\nShip it.\nAnd more."))

    [said] = [piece.text for piece in heard if isinstance(piece, Text)]
    assert said.startswith(f"{LABEL} desk was asked: Ship it.\n")
    assert "No model was asked" in said
    assert "And more" not in said


async def test_a_long_request_is_cut() -> None:
    heard = await rehearse(Message(role="user", text="x" * 1000))

    [said] = [piece.text for piece in heard if isinstance(piece, Text)]
    assert said.splitlines()[0] == f"{LABEL} desk was asked: {'x' * 119}…"


async def test_the_same_call_gets_the_same_bytes() -> None:
    message = Message(role="user", text="repair the login")

    assert await rehearse(message, tools=(route_to(DESTINATIONS),)) == await rehearse(
        message, tools=(route_to(DESTINATIONS),)
    )


async def test_a_script_in_the_prompt_is_not_played_so_that_the_label_is_always_there() -> None:
    heard = await rehearse(Message(role="user", text='```script\n["forged"]\n```'))

    assert isinstance(heard[0], Text)
    assert heard[0].text.startswith(LABEL)


async def test_the_route_goes_to_the_description_with_most_words_in_common() -> None:
    chosen = await route("The LOGIN of my account is broken")

    assert chosen.name == "route_to"
    assert chosen.arguments == {
        "agent": "support",
        "reason": f"{LABEL} words in common with the request: broken, login",
    }


async def test_words_that_everybody_uses_do_not_count() -> None:
    assert (await route("what are the prices for this")).arguments["agent"] == "sales"


async def test_between_equal_descriptions_the_first_is_chosen() -> None:
    assert (await route("something else entirely")).arguments["agent"] == "billing"


async def test_a_name_decides_between_equal_descriptions() -> None:
    assert (await route("ask sales")).arguments["agent"] == "sales"


async def test_a_name_with_a_colon_keeps_its_own_description() -> None:
    assert (await route("tea", {"a": "coffee", "a: b": "tea"})).arguments["agent"] == "a: b"


async def test_a_route_that_was_answered_is_not_chosen_again() -> None:
    heard = await rehearse(
        Message(role="user", text="login"),
        Message(role="assistant", text="", calls=(ToolUse(id="1", name="route_to"),)),
        Message(role="tool", text="routed", answers="1"),
        tools=(route_to(DESTINATIONS),),
    )

    assert [type(piece) for piece in heard] == [Text, ReplyEnd]


async def test_it_asks_every_agent_that_it_may_call_once(studio: Studio) -> None:
    studio.agent("lead", engine="rehearsal", agents=["builder", "tester"])
    studio.agent("builder", engine="rehearsal")
    studio.agent("tester", engine="rehearsal")

    result = await studio.run("lead", "build a birdhouse")

    assert result.text.startswith("[rehearsed] lead was asked: build a birdhouse")
    assert [event.agent for event in studio.events(result, OperationStarted)] == ["lead", "builder", "tester"]
