"""Discuss: members deliberate on a shared channel, in rounds, until there is a reason to end; the lead answers.

Only what is said with `broadcast`, voted, or replied without either is shared. Each member hears each
message once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from anyio import create_task_group

from ..agent import Agent
from ..errors import Failed
from ..event import Broadcast, DiscussionEnded, RoundEnded, ToolUse, Voted
from ..journal import Scope
from ..mind import Tool, ToolAnswer
from ..operation import Operation
from ..request import Answer, Part, Request
from .prompts import filled
from .stall import StallDetector
from .team import Options, members, options
from .verdict import neutralise

Ending = Literal["consensus", "max_rounds", "coordinator", "stalled", "nobody_left"]
FALLBACK = "[no answer of the coordinator's: the discussion itself follows]"


@dataclass
class Channel:
    """What was said and voted so far, and how far each member has heard."""

    said: list[Broadcast] = field(default_factory=list)
    votes: dict[str, Voted] = field(default_factory=dict)
    heard: dict[str, int] = field(default_factory=dict)
    conclusion: str = ""

    def news(self, name: str) -> list[Broadcast]:
        """What a member has not heard yet; from now on it has."""
        new = [one for one in self.said[self.heard.get(name, 0) :] if one.author != name]
        self.heard[name] = len(self.said)
        return new

    def of_round(self, number: int) -> list[Broadcast]:
        """What was said in a round."""
        return [one for one in self.said if one.round == number]


async def discuss(op: Operation, request: Request) -> Answer:
    """The coordinator's answer from the discussion; the discussion itself, marked, where it has none."""
    own, taking_part = options(op), members(op)
    channel, stall = Channel(), StallDetector()
    ended: Ending = "max_rounds"
    rounds = 0
    parts: tuple[Part, ...] = ()
    while rounds < own.max_rounds:
        rounds += 1
        parts = await _round(op, own, request, taking_part, channel, rounds)
        if not any(part.failure is None for part in parts):
            ended = "nobody_left"
            break
        if own.termination == "consensus" and _agree(channel, parts):
            ended = "consensus"
            break
        if rounds < own.max_rounds or own.termination == "coordinator_decides":
            await _coordinate(op, own, taking_part, channel, rounds)
        if channel.conclusion and own.termination == "coordinator_decides":
            ended = "coordinator"
            break
        stall.check("\n".join(sorted(one.text for one in channel.of_round(rounds))))
        if stall.is_stalled:
            ended = "stalled"
            break
    op.scope.record(DiscussionEnded(by=ended, rounds=rounds))
    return Answer(text=await _concluded(op, own, request, channel, ended), parts=parts)


# One round


async def _round(
    op: Operation, own: Options, request: Request, taking_part: dict[str, Agent], channel: Channel, number: int
) -> tuple[Part, ...]:
    """Every member at once, each with what it has not heard; a slow one is cut and joins the next round."""
    parts: dict[str, Part] = {}
    news = {name: channel.news(name) for name in taking_part}
    children = {name: op.child(agent, "member") for name, agent in taking_part.items()}

    async def one(name: str, child: Operation) -> None:
        child.coordination = (_broadcast_tool(name, number), _vote_tool(name, number))
        words = filled(
            own.prompts,
            "round",
            names=", ".join(taking_part),
            round=number,
            request=request.original,
            news=_listed(news[name]),
        )
        parts[name] = await child.outcome(Request(text=words, origin=request.original), timeout=own.round_timeout)

    async with create_task_group() as group:
        for name, child in children.items():
            group.start_soon(one, name, child)
    for name, child in children.items():
        said = _said_by(name, child, parts[name], number)
        for event in said:
            if isinstance(event, Voted):
                channel.votes[name] = event
            else:
                channel.said.append(event)
    missing = tuple(name for name, part in parts.items() if part.failure is not None)
    op.scope.record(RoundEnded(round=number, missing=missing))
    return tuple(parts[name] for name in taking_part)


def _said_by(name: str, child: Operation, part: Part, number: int) -> list[Broadcast | Voted]:
    """What a member said and voted in a round; what it only replied counts as said."""
    said: list[Broadcast | Voted] = list(child.scope.timeline.below(child.scope.path, Broadcast, Voted))
    if not said and part.failure is None and part.text.strip():
        said = [child.scope.record(Broadcast(author=name, round=number, text=part.text))]
    return said


def _agree(channel: Channel, parts: tuple[Part, ...]) -> bool:
    """Whether every member that is still there has voted last that it is ready."""
    live = [part.agent for part in parts if part.failure is None]
    return bool(live) and all(name in channel.votes and channel.votes[name].ready for name in live)


# The coordinator


async def _coordinate(
    op: Operation, own: Options, taking_part: dict[str, Agent], channel: Channel, number: int
) -> None:
    """Let the coordinator look at the round: it may say something, or conclude."""
    lead = op.session(*_COORDINATOR)
    words = filled(
        own.prompts,
        "coordinate",
        names=", ".join(taking_part),
        round=number,
        news=_listed(channel.news(op.agent.name)),
        votes=_counted(channel),
    )
    reply = await lead.ask(words)
    for call in reply.calls:
        summary, message = call.arguments.get("summary"), call.arguments.get("message")
        if call.name == "conclude" and isinstance(summary, str) and summary.strip():
            channel.conclusion = summary
        if call.name == "broadcast" and isinstance(message, str) and message.strip():
            channel.said.append(op.scope.record(Broadcast(author=op.agent.name, round=number, text=message)))


async def _concluded(op: Operation, own: Options, request: Request, channel: Channel, ended: Ending) -> str:
    """The answer: what the coordinator concluded with, or makes of the transcript; else the transcript, marked."""
    if channel.conclusion and ended == "coordinator":
        return channel.conclusion
    transcript = _listed(channel.said)
    words = filled(own.prompts, "conclude", why=ended, request=request.original, transcript=transcript)
    try:
        reply = await op.session().ask(words)
    except Failed as error:
        if error.failure.kind == "budget" or not channel.said:
            raise
        return f"{FALLBACK}\n\n{transcript}"
    return reply.text


# Tools


def _broadcast_tool(author: str, number: int) -> Tool:
    def said(arguments: dict[str, Any]) -> Broadcast | None:
        text = arguments.get("message")
        return Broadcast(author=author, round=number, text=text) if isinstance(text, str) and text.strip() else None

    return _tool("broadcast", "Say something to all members of the discussion.", {"message": "string"}, said)


def _vote_tool(author: str, number: int) -> Tool:
    def voted(arguments: dict[str, Any]) -> Voted | None:
        ready, reason = arguments.get("ready"), str(arguments.get("reason", ""))
        return Voted(author=author, round=number, ready=ready, reason=reason) if isinstance(ready, bool) else None

    fields = {"ready": "boolean", "reason": "string"}
    return _tool("vote_conclude", "Vote whether the discussion can end.", fields, voted)


def _tool(
    name: str,
    description: str,
    fields: dict[str, str],
    made: Callable[[dict[str, Any]], Broadcast | Voted | None] | None,
) -> Tool:
    """A tool whose effect is an event; without `made` the caller reads the call itself."""

    async def answer(call: ToolUse, scope: Scope) -> ToolAnswer:
        if made is None:
            return ToolAnswer(text="noted", ends_turn=name == "conclude")
        event = made(call.arguments)
        if event is None:
            return ToolAnswer(text=f"{name} needs {', '.join(fields)}.", is_error=True)
        scope.record(event)
        return ToolAnswer(text="noted")

    return Tool(
        name=name,
        description=description,
        parameters={
            "type": "object",
            "properties": {field: {"type": kind} for field, kind in fields.items()},
            "required": [next(iter(fields))],
        },
        answer=answer,
    )


_COORDINATOR = (
    _tool("broadcast", "Say something to all members of the discussion.", {"message": "string"}, None),
    _tool("conclude", "End the discussion with its answer.", {"summary": "string"}, None),
)


# Words


def _listed(said: list[Broadcast]) -> str:
    """Messages as data: who said what in which round."""
    return "".join(f"\n[{one.author}, round {one.round}]\n{neutralise(one.text)}\n" for one in said)


def _counted(channel: Channel) -> str:
    return "\n".join(
        f"{vote.author}: {'ready' if vote.ready else 'not ready'} ({vote.reason})" for vote in channel.votes.values()
    )
