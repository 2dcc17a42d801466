"""Route a request: a router agent chooses another agent, which then answers the request.

The router chooses with the tool `route_to`, or with a JSON object on engines without tools. After a choice
that is not in the list, the router is shown the list and asked again. If it still makes no valid choice, the
fallback is used, if there is one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from ..core.engine import Tool, ToolAnswer
from ..core.operation import Operation
from ..core.scope import Scope
from ..core.session import Reply, Session
from ..values.errors import AgentFailed
from ..values.event import Routed, RouteRefused, ToolUse
from ..values.request import Answer, Note, Request

CORRECTIONS = 2
LONGEST_REPLY = 100_000
MOST_BRACES = 100


@dataclass(frozen=True, slots=True)
class RouteChoice:
    """The agent that a router chose, and the reason."""

    agent: str
    reason: str


async def route_request(op: Operation, request: Request) -> Answer:
    """Let the router choose an agent, send the original request to that agent, and return its answer."""
    chosen = op.scope.record(await choose_destination(op, request))
    reason = Note(title=f"routed by {op.agent.name}", text=chosen.reason)
    onward = structs.replace(op.request, notes=(*op.request.notes, reason))
    return await op.child(chosen.agent, "route").run(onward)


async def choose_destination(op: Operation, request: Request) -> Routed:
    """Return the router's choice, or the fallback if no choice is valid. Raise AgentFailed if there is no fallback."""
    destinations, router = op.agent.destinations, op.agent.router
    assert router is not None
    session = op.session(make_route_tool(op), *await get_router_tools(op), max_turns=router.max_turns)
    prompt = f"{request.prompt()}\n\n{format_instructions(destinations)}"
    for _ in range(1 + CORRECTIONS):
        choice = parse_choice(await _ask_router(session, prompt))
        if choice.agent in destinations:
            return Routed(agent=choice.agent, reason=choice.reason)
        op.scope.record(RouteRefused(chosen=choice.agent, destinations=destinations))
        prompt = f"{describe_refusal(choice.agent, destinations)} {format_instructions(destinations)}"
    if router.fallback is not None:
        return Routed(agent=router.fallback, reason=describe_refusal(choice.agent, destinations), is_fallback=True)
    raise op.make_error("routing", f"routing failed: {describe_refusal(choice.agent, destinations)}")


async def get_router_tools(op: Operation) -> tuple[Tool, ...]:
    """Return the tools that a router can use before it chooses: those in its file, or none if it has only one turn."""
    router = op.agent.router
    assert router is not None
    return await op.offer_tools() if router.max_turns > 1 and op.agent.tools is not None else ()


async def _ask_router(session: Session, prompt: str) -> Reply:
    try:
        return await session.ask(prompt)
    except AgentFailed as error:
        if error.failure.kind == "limit":
            return Reply(text="")  # the router used up its turns without choosing
        raise


def make_route_tool(op: Operation) -> Tool:
    """Create the tool with which a router chooses a destination. A call ends the turn, even with an invalid choice."""
    destinations = op.agent.destinations
    known = "\n".join(f"- {name}: {op.agents[name].description}" for name in destinations)

    async def answer_call(call: ToolUse, scope: Scope) -> ToolAnswer:
        choice = _make_choice(call.arguments)
        if choice.agent in destinations:
            return ToolAnswer(text=f"The request goes to {choice.agent}.", ends_turn=True)
        return ToolAnswer(text=describe_refusal(choice.agent, destinations), is_error=True, ends_turn=True)

    return Tool(
        name="route_to",
        description=f"Choose the agent that handles this request:\n{known}",
        parameters={
            "type": "object",
            "properties": {
                "agent": {"type": "string", "enum": list(destinations)},
                "reason": {"type": "string", "description": "Why this agent is the right one."},
            },
            "required": ["agent", "reason"],
        },
        answer=answer_call,
    )


def format_instructions(destinations: Sequence[str]) -> str:
    """Return the instructions for a router."""
    return (
        f"Choose who handles this request: {', '.join(destinations)}. Call route_to, or reply with a JSON object "
        '{"agent": "...", "reason": "..."} and nothing else.'
    )


def describe_refusal(chosen: str, destinations: Sequence[str]) -> str:
    """Return a message that explains why a choice is not valid."""
    known = ", ".join(destinations)
    return (
        f"{chosen!r} is not one of the destinations: {known}."
        if chosen
        else f"No destination was chosen; available: {known}."
    )


def parse_choice(reply: Reply) -> RouteChoice:
    """Return the choice in a reply: its first `route_to` call, or the first JSON object with an `agent`."""
    for call in reply.calls:
        if call.name == "route_to":
            return _make_choice(call.arguments)
    return next(
        (_make_choice(found) for found in _find_json_objects(reply.text) if isinstance(found.get("agent"), str)),
        _NO_CHOICE,
    )


def _make_choice(arguments: dict[str, Any]) -> RouteChoice:
    return RouteChoice(agent=str(arguments.get("agent", "")).strip(), reason=str(arguments.get("reason", "")))


_NO_CHOICE = RouteChoice(agent="", reason="")
_decoder = json.JSONDecoder()


def _find_json_objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects in `text`, including those in fences and prose. The number of attempts is limited."""
    text, place = text[:LONGEST_REPLY], 0
    for _ in range(MOST_BRACES):
        if (place := text.find("{", place)) < 0:
            return
        try:
            found, place = _decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            place += 1
        else:
            yield found
