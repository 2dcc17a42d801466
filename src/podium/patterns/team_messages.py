"""Create the tool that team members use to send each other messages.

A message is recorded in the sender's run before it is posted, and in the receiver's run when it arrives. When it is
delivered to the receiver, the sender's run gets a receipt.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

from ..core.engine import Tool, ToolAnswer
from ..core.gate import InvalidCall
from ..core.operation import Operation
from ..core.person_message import TEAMMATE
from ..core.placement import Placement, Teammate
from ..core.scope import Scope
from ..core.tool_arguments import Arguments, build_schema, parse_arguments
from ..values.event import MessageReceived, MessageSent, ToolUse
from ..values.operation_path import parse_team_operation
from ..values.plain_text import join_words
from ..values.tool_table import SEND_MESSAGE

LONGEST_MESSAGE = 4000
MOST_MESSAGES = 20
"""How many messages an agent can send during one operation."""


class SendMessageArguments(Arguments, frozen=True, kw_only=True):
    """The arguments of send_message."""

    to: Annotated[str, Meta(min_length=1)]
    text: Annotated[str, Meta(min_length=1)]


def make_message_tools(op: Operation) -> tuple[Tool, ...]:
    """Create the tool that sends messages, if the agent lists it and works in a team."""
    placement = op.placement
    if SEND_MESSAGE not in (op.agent.tools or ()) or placement is None or not (team := find_team(op, placement)):
        return ()

    async def send(call: ToolUse, scope: Scope) -> ToolAnswer:
        try:
            asked = parse_arguments(call, SendMessageArguments)
            to = _choose_receiver(op, asked, await placement.list_teammates(team))
        except InvalidCall as error:
            return ToolAnswer(text=str(error), is_error=True)
        receipts = _describe_receipts(op)
        sent = scope.record(MessageSent(id=secrets.token_hex(6), to=asked.to, text=asked.text, run=to.run))
        to = Teammate(name=sent.to, run=sent.run, agent=to.agent)
        await scope.timeline.wait_written()
        sender = f"{op.agent.name}{TEAMMATE}"
        message = MessageReceived(
            id=sent.id, to=to.agent, text=sent.text, by=sender, sender=scope.timeline.run, channel="agent"
        )
        if not await placement.post_message(to, message):
            return ToolAnswer(text=f"{asked.to} has ended and did not get the message.{receipts}", is_error=True)
        return ToolAnswer(text=f"Sent. {asked.to} gets the message before its next model call.{receipts}")

    return (
        Tool(
            name=SEND_MESSAGE,
            description="Send a message to a member of your team. Do not wait for an answer.",
            parameters=build_schema(SendMessageArguments),
            answer=send,
            timeout=60.0,
            is_step=True,
            is_parallel=False,
        ),
    )


def find_team(op: Operation, placement: Placement) -> str:
    """Return the path of the operation that leads the agent's team, or an empty string if it is not in a team.

    A worker's team is in the run that started the worker.
    """
    above = op.parent
    while above is not None:
        if above.agent.team is not None:
            return above.scope.path
        above = above.parent
    return parse_team_operation(placement.parent_operation) if placement.parent_operation else ""


def _choose_receiver(op: Operation, asked: SendMessageArguments, teammates: Iterable[Teammate]) -> Teammate:
    """Return the member that a message is for. Raise InvalidCall if the message cannot be sent."""
    known = {one.name: one for one in teammates if one.name != op.agent.name}
    if asked.to not in known:
        raise InvalidCall(f"{asked.to!r} is not in your team; available: {join_words(sorted(known)) or 'nobody'}.")
    if len(asked.text) > LONGEST_MESSAGE:
        raise InvalidCall(f"The message has {len(asked.text):,} characters; the limit is {LONGEST_MESSAGE:,}.")
    if len(op.scope.timeline.find_events_below(op.scope.path, MessageSent)) >= MOST_MESSAGES:
        raise InvalidCall(f"You have sent {MOST_MESSAGES} messages, which is the limit; continue without sending more.")
    return known[asked.to]


def _describe_receipts(op: Operation) -> str:
    """Return the delivery status of the agent's earlier messages, or an empty string if there are none."""
    earlier = op.scope.timeline.find_events_below(op.scope.path, MessageSent)
    if not earlier:
        return ""
    receipts = [op.scope.timeline.index.messages.receipts.get(sent.id) for sent in earlier]
    counts = {"read": receipts.count(True), "waiting": receipts.count(None), "never read": receipts.count(False)}
    return f" Your earlier messages: {', '.join(f'{number} {word}' for word, number in counts.items() if number)}."
