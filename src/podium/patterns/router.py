"""Route a request: a router agent chooses another agent, which then answers the request.

The router chooses with the tool `route_to`, or with a JSON object. After a choice that is not in the list, the router
is shown the list and asked again, without the invalid reply in its conversation. If it still makes no valid choice,
the fallback is used, if there is one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from ..core.engine import ReplyFormat, Tool, ToolAnswer
from ..core.operation import Operation
from ..core.scope import Scope
from ..core.session import Reply, Session
from ..values.errors import AgentFailed
from ..values.event import Routed, RouteRefused, ToolUse
from ..values.json import JsonObject
from ..values.request import Answer, Note, Request
from ..values.tool_table import ROUTE_TO
from .json_output import TEXT, make_choice, make_object_schema

CORRECTIONS = 2
LONGEST_REPLY = 100_000
MOST_BRACES = 100
LONGEST_IN_WORDS = 200
"""The maximum number of characters in a reply in which a destination's name counts as a choice. In a longer reply, the
name may be an ordinary word."""


@dataclass(frozen=True, slots=True)
class RouteChoice:
    """The agent that a router chose, and the reason."""

    agent: str
    reason: str


async def route_request(op: Operation, request: Request) -> Answer:
    """Let the router choose an agent, send the original request to that agent, and return its answer.

    If the router's `is_choice_only` is true, return the choice itself as the answer.
    """
    chosen = op.scope.record(await _choose_destination(op, request))
    if op.agent.router is not None and op.agent.router.is_choice_only:
        return Answer(text=f"{chosen.agent}: {chosen.reason}")
    onward = op.request
    if not chosen.is_fallback and chosen.reason.strip():
        # The title names no agent, because small models mistake the router's name for part of the request.
        reason = Note(title="why you were chosen for this request", text=chosen.reason)
        onward = structs.replace(onward, notes=(*onward.notes, reason))
    return await op.child(chosen.agent, "route").run(onward)


async def _choose_destination(op: Operation, request: Request) -> Routed:
    """Return the router's choice, or the fallback if no choice is valid. Raise AgentFailed if there is no fallback."""
    destinations, router = op.agent.destinations, op.agent.router
    assert router is not None
    tool = make_route_tool(op)
    session = op.session(tool, *await _get_router_tools(op), max_turns=router.max_turns)
    wanted = ReplyFormat(schema=tool.parameters, tool=tool.name)
    instructions = format_instructions(destinations, has_tool=not session.enforces_format(wanted))
    whole_prompt = prompt = f"{request.prompt()}\n\n{instructions}"
    for attempt in range(1 + CORRECTIONS):
        reply = await _ask_router(session, prompt, wanted)
        choice = parse_choice(reply or Reply(text=""), destinations)
        if choice.agent in destinations:
            return Routed(agent=choice.agent, reason=choice.reason)
        op.scope.record(RouteRefused(chosen=choice.agent, destinations=destinations))
        prompt = _format_correction(choice.agent, destinations, is_last=attempt + 1 == CORRECTIONS)
        if reply is None:
            prompt = f"{whole_prompt}\n\n{prompt}"  # a turn without a reply is not part of the conversation
        else:
            await session.refuse_reply()
    if router.fallback is not None:
        return Routed(agent=router.fallback, reason=describe_refusal(choice.agent, destinations), is_fallback=True)
    raise op.make_error("routing", f"routing failed: {describe_refusal(choice.agent, destinations)}")


async def _get_router_tools(op: Operation) -> tuple[Tool, ...]:
    """Return the tools that a router can use before it chooses: those in its file, or none if it has only one turn."""
    router = op.agent.router
    assert router is not None
    return await op.offer_tools() if router.max_turns > 1 and op.agent.tools is not None else ()


async def _ask_router(session: Session, prompt: str, wanted: ReplyFormat) -> Reply | None:
    """Return the router's reply, or None if it used up its turns without choosing."""
    try:
        return await session.ask(prompt, reply_format=wanted)
    except AgentFailed as error:
        if error.failure.kind == "limit":
            return None
        raise


def make_route_tool(op: Operation) -> Tool:
    """Create the tool that a router uses to choose a destination. A call ends the turn, even with an invalid choice."""
    destinations = op.agent.destinations
    known = "\n".join(f"- {name}: {op.agents[name].description}" for name in destinations)

    async def answer_call(call: ToolUse, scope: Scope) -> ToolAnswer:
        choice = _make_choice(call.arguments, destinations)
        if choice.agent in destinations:
            return ToolAnswer(text=f"The request goes to {choice.agent}.", ends_turn=True)
        return ToolAnswer(text=describe_refusal(choice.agent, destinations), is_error=True, ends_turn=True)

    return Tool(
        name=ROUTE_TO,
        description=f"Choose the agent that handles this request:\n{known}",
        parameters=make_object_schema({"agent": make_choice(destinations), "reason": TEXT}),
        answer=answer_call,
    )


def format_instructions(destinations: Sequence[str], *, has_tool: bool) -> str:
    """Return the instructions for a router. `has_tool` is whether the model is offered the tool `route_to`."""
    return (
        f"Do not answer the request. Choose who handles it: {', '.join(destinations)}. "
        f"{'Call route_to, or reply' if has_tool else 'Reply'} with only this JSON: "
        '{"agent": "NAME", "reason": "WHY"}'
    )


def _format_correction(chosen: str, destinations: Sequence[str], *, is_last: bool) -> str:
    """Return the prompt to send after an invalid choice. If `is_last`, the prompt asks only for a name."""
    if is_last:
        return f"Who handles the request? Reply with one name and nothing else: {' or '.join(destinations)}."
    return (
        f"An earlier reply to this request was not valid. {describe_refusal(chosen, destinations)} "
        'Reply with only this JSON, where NAME is one of the destinations: {"agent": "NAME", "reason": "WHY"}'
    )


def describe_refusal(chosen: str, destinations: Sequence[str]) -> str:
    """Return a message that explains why a choice is not valid."""
    known = ", ".join(destinations)
    return (
        f"{chosen!r} is not one of the destinations: {known}."
        if chosen
        else f"No destination was chosen; available: {known}."
    )


# Reading a choice


def parse_choice(reply: Reply, destinations: Sequence[str] = ()) -> RouteChoice:
    """Return the choice in a reply: its first `route_to` call, a JSON object, or the only destination that it names.

    If several JSON objects contain a choice, use the first that chooses one of `destinations`. If none does, use the
    first object.
    """
    for call in reply.calls:
        if call.name == ROUTE_TO:
            return _make_choice(call.arguments, destinations)
    read = (_read_object(found, destinations) for found in _find_json_objects(reply.text))
    choices = [choice for choice in read if choice is not None]
    valid = (choice for choice in choices if choice.agent in destinations)
    return next(valid, None) or next(iter(choices), None) or _find_in_code(reply.text, destinations)


def _read_object(found: Mapping[str, Any], destinations: Sequence[str]) -> RouteChoice | None:
    """Return the choice in a JSON object, or None if the object contains no choice.

    The choice is the object's `agent`. If the object describes a tool call, the choice can also be the call's `agent`
    argument or the name of the tool: a small model that cannot call tools writes a call as text, and often uses the
    destination as the name of the tool.
    """
    call = found["function"] if isinstance(found.get("function"), dict) else found
    arguments: Mapping[str, Any] = next((call[key] for key in _ARGUMENT_KEYS if isinstance(call.get(key), dict)), {})
    for source in (found, arguments):
        if isinstance(source.get("agent"), str) and source["agent"].strip(" ."):
            return _make_choice(source, destinations)
    if isinstance(call.get("name"), str) and (name := _match_name(call["name"], destinations)) in destinations:
        return RouteChoice(agent=name, reason=_read_reason(arguments))
    return None


def _make_choice(arguments: JsonObject, destinations: Sequence[str]) -> RouteChoice:
    written = arguments.get("agent")
    if written is None:
        # A model may give the argument another name, such as `destination`.
        named = [value for key, value in arguments.items() if key != "reason" and isinstance(value, str)]
        written = next((value for value in named if _match_name(value, destinations) in destinations), "")
    name = _match_name(str(written), destinations)
    return RouteChoice(agent=name, reason=_read_reason(arguments))


def _read_reason(arguments: JsonObject) -> str:
    return str(arguments.get("reason", ""))


def _match_name(written: str, destinations: Sequence[str]) -> str:
    """Return the destination with this name, ignoring case and markup. If there is no match, return the name itself."""
    bare = written.strip(" \t\r\n`*_\"'@.")
    if bare in destinations:
        return bare
    return next((name for name in destinations if name.casefold() == bare.casefold()), written.strip())


def _find_in_code(text: str, destinations: Sequence[str]) -> RouteChoice:
    """Return the choice in a call or dictionary written as in Python, or the destination that a short reply names."""
    for call in _PYTHON_CHOICE.finditer(text[:LONGEST_REPLY]):
        if (name := _match_name(call["agent"], destinations)) in destinations:
            return RouteChoice(agent=name, reason="")
    return _find_in_words(text, destinations)


def _find_in_words(text: str, destinations: Sequence[str]) -> RouteChoice:
    """Return the destination that a short reply names.

    Return _NO_CHOICE if the reply is too long, contains a negation, or does not name exactly one destination.
    """
    if len(text.strip()) > LONGEST_IN_WORDS or _DENIAL.search(text):
        return _NO_CHOICE
    named = [
        name
        for name in destinations
        if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text, re.IGNORECASE) is not None
    ]
    return RouteChoice(agent=named[0], reason="") if len(named) == 1 else _NO_CHOICE


_NO_CHOICE = RouteChoice(agent="", reason="")
_DENIAL = re.compile(r"\b(?:not|no|never|cannot|nobody|none|neither)\b|n't\b", re.IGNORECASE)
_PYTHON_CHOICE = re.compile(r"""(?:\broute_to\(\s*(?:agent\s*=\s*)?|'agent'\s*:\s*)["'](?P<agent>[^"'\n]{1,200})["']""")
_ARGUMENT_KEYS = ("arguments", "parameters")
_decoder = json.JSONDecoder(strict=False)


def _find_json_objects(text: str) -> Iterator[JsonObject]:
    """Yield the JSON objects in `text`, including those in code fences, in prose and in doubled braces.

    To limit the running time, only the beginning of a long text is searched, and only a limited number of braces is
    tried as the start of an object.
    """
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
