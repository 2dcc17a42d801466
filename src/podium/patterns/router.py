"""Routing: an agent chooses who answers, and the chosen one answers instead.

The choice comes through the tool `route_to`, or as a JSON object from engines without tools. A
choice outside the list is answered with the list; after that the fallback decides, if there is one.
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
from ..values.errors import Failed
from ..values.event import Routed, RouteRefused, ToolUse
from ..values.request import Answer, Note, Request

CORRECTIONS = 2
LONGEST_REPLY = 100_000
MOST_BRACES = 100


@dataclass(frozen=True, slots=True)
class Choice:
    """Whom a router named, and why."""

    agent: str
    reason: str


async def route(op: Operation, request: Request) -> Answer:
    """The answer of the agent that the router chooses, to the request that the router was given."""
    chosen = op.scope.record(await choose(op, request))
    reason = Note(title=f"routed by {op.agent.name}", text=chosen.reason)
    onward = structs.replace(op.request, notes=(*op.request.notes, reason))
    return await op.child(chosen.agent, "route").run(onward)


async def choose(op: Operation, request: Request) -> Routed:
    """Whom the router names; the fallback, or a failure, when it names nobody it may name."""
    destinations, router = op.agent.destinations, op.agent.router
    assert router is not None
    session = op.session(route_to(op), *await looking(op), max_turns=router.max_turns)
    prompt = f"{request.prompt()}\n\n{instructions(destinations)}"
    for _ in range(1 + CORRECTIONS):
        choice = choice_in(await _reply(session, prompt))
        if choice.agent in destinations:
            return Routed(agent=choice.agent, reason=choice.reason)
        op.scope.record(RouteRefused(chosen=choice.agent, destinations=destinations))
        prompt = f"{refusal(choice.agent, destinations)} {instructions(destinations)}"
    if router.fallback is not None:
        return Routed(agent=router.fallback, reason=refusal(choice.agent, destinations), is_fallback=True)
    raise op.failed("routing", f"routing failed: {refusal(choice.agent, destinations)}")


async def looking(op: Operation) -> tuple[Tool, ...]:
    """What a router may look around with before it chooses: the tools that it lists, where it has turns for that."""
    router = op.agent.router
    assert router is not None
    return await op.offered() if router.max_turns > 1 and op.agent.tools is not None else ()


async def _reply(session: Session, prompt: str) -> Reply:
    try:
        return await session.ask(prompt)
    except Failed as error:
        if error.failure.kind == "limit":
            return Reply(text="")  # it looked around for too long and named nobody
        raise


def route_to(op: Operation) -> Tool:
    """The tool that names a destination. Calling it ends the turn, whatever it names."""
    destinations = op.agent.destinations
    known = "\n".join(f"- {name}: {op.agents[name].description}" for name in destinations)

    async def answer(call: ToolUse, scope: Scope) -> ToolAnswer:
        choice = _choice(call.arguments)
        if choice.agent in destinations:
            return ToolAnswer(text=f"The request goes to {choice.agent}.", ends_turn=True)
        return ToolAnswer(text=refusal(choice.agent, destinations), is_error=True, ends_turn=True)

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
        answer=answer,
    )


def instructions(destinations: Sequence[str]) -> str:
    """What a router is told to do with a request."""
    return (
        f"Choose who handles this request: {', '.join(destinations)}. Call route_to, or reply with a JSON object "
        '{"agent": "...", "reason": "..."} and nothing else.'
    )


def refusal(chosen: str, destinations: Sequence[str]) -> str:
    """What is wrong with a choice."""
    known = ", ".join(destinations)
    return f"{chosen!r} is none of the destinations, which are {known}." if chosen else f"Nobody was chosen of {known}."


def choice_in(reply: Reply) -> Choice:
    """The choice that a reply makes: its first call of the tool, else the first JSON object that names an agent."""
    for call in reply.calls:
        if call.name == "route_to":
            return _choice(call.arguments)
    return next((_choice(found) for found in _objects(reply.text) if isinstance(found.get("agent"), str)), _NOBODY)


def _choice(arguments: dict[str, Any]) -> Choice:
    return Choice(agent=str(arguments.get("agent", "")).strip(), reason=str(arguments.get("reason", "")))


_NOBODY = Choice(agent="", reason="")
_decoder = json.JSONDecoder()


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects in a text, alone, in a fence or among prose; not for ever in a text full of braces."""
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
