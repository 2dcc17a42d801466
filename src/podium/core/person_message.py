"""Exchange messages between people and running agents: each message is delivered in exactly one turn.

An agent's question is answered by a person, from any process and even after a restart.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from itertools import count

from msgspec import structs

from ..values.event import KINDS, MessageReceived, MessagesDelivered, QuestionAnswered, QuestionAsked
from ..values.plain_text import escape_unprintable
from ..values.request import quote_lines, replace_surrogates
from ..values.usage import Unattended
from .journal_rows import compute_digest
from .scope import Scope
from .timeline import Timeline

TEAMMATE = ", a member of your team"
"""How the name of an agent that sends a message ends."""


def find_delivered_messages(place: Scope) -> str:
    """Return the text of the messages delivered at this scope, or an empty string."""
    known = place.child("messages").find_outcome(MessagesDelivered)
    return "" if known is None else known.text


async def deliver_messages(place: Scope, agent: str) -> str:
    """Record that the agent's pending messages are delivered at this scope, and return their text."""
    if known := find_delivered_messages(place):
        return known
    waiting = place.timeline.index.messages.list_undelivered(agent)
    # Send the receipts before recording the delivery: if the process dies in between, the resumed run delivers the
    # messages.
    if waiting:
        await place.timeline.links.acknowledge(waiting)
        # Another session of the agent may have received them in the meantime.
        still_waiting = {message.id for message in place.timeline.index.messages.list_undelivered(agent)}
        waiting = [message for message in waiting if message.id in still_waiting]
    return _record_delivery(place, waiting) if waiting else ""


async def offer_messages(place: Scope, agent: str, offer: Callable[[str], Awaitable[bool]]) -> None:
    """Offer the text of the agent's pending messages, and record at this scope that they are delivered.

    `offer` returns whether the agent has accepted the messages. If not, they stay pending.
    """
    timeline = place.timeline
    waiting = timeline.index.messages.list_undelivered(agent)
    offered = {message.id for message in waiting}
    timeline.index.messages.offered |= offered
    try:
        if waiting and await offer(_format_messages(waiting, timeline)):
            await timeline.links.acknowledge(waiting)
            _record_delivery(place, waiting)
    finally:
        timeline.index.messages.offered -= offered


def _record_delivery(place: Scope, messages: Sequence[MessageReceived]) -> str:
    text = _format_messages(messages, place.timeline)
    place.child("messages").record_outcome(MessagesDelivered(ids=tuple(message.id for message in messages), text=text))
    return text


def _format_messages(messages: Sequence[MessageReceived], timeline: Timeline) -> str:
    return "\n\n".join(_format_message(message, timeline) for message in messages)


def _format_message(message: MessageReceived, timeline: Timeline) -> str:
    """Format a message with its attachments: text files in full, images as a marker that the engine replaces."""
    lines = [f"[message from {_name_sender(message)}]{quote_lines(message.text)}"]
    for one in message.attachments:
        data = timeline.links.read_attachment(one.digest)
        if data is None:
            lines.append(f"[file {one.name}, which is no longer available]")
        elif one.is_image:
            lines.append(one.prompt_marker)
        else:
            lines.append(
                f"[file {one.name}]{quote_lines(timeline.redaction.redact_text(replace_surrogates(data.decode())))}"
            )
    return "\n".join(lines)


def _name_sender(message: MessageReceived) -> str:
    """Return who sent a message. What an agent sends never looks like the words of a person.

    A host of a fleet can write any name into the messages of its agents.
    """
    if not message.sender:
        return message.by or "the person"
    name = escape_unprintable(message.by.removesuffix(TEAMMATE)).replace("[", "(").replace("]", ")")
    return f"{name or 'an agent'}{TEAMMATE}"


async def ask_question(
    scope: Scope, question: QuestionAsked, *, unattended: Unattended | None
) -> QuestionAnswered | None:
    """Record a question once and return the answer, or None if nobody is available to answer.

    The question is recorded with an id and the digest of the text that the user sees. If an answer was given for a
    different text, it does not count, and the question is asked again. The caller's timeouts are paused until the
    answer arrives. If `unattended` is `park`, the whole run is paused instead.
    """
    timeline = scope.timeline
    digest = compute_digest(question.shown) if question.shown else ""
    for number in count(1):
        asked = scope.child(f"{KINDS[QuestionAsked]}#{number}").find_outcome(QuestionAsked)
        if asked is None and unattended == "deny":
            return None
        asked = scope.record(asked or structs.replace(question, id=secrets.token_hex(6), digest=digest))
        if asked.id not in timeline.index.requests.answers:
            if unattended == "deny":
                return None
            await timeline.wait_written()
            if unattended == "park":
                timeline.work.pause()
                await timeline.work.wait_while_paused()
            timeline.links.report_waiting(asked.id)
        with timeline.work.timeouts.pause_timeouts(scope.path):
            answered = await timeline.index.requests.wait_answer(asked.id)
        assert isinstance(answered, QuestionAnswered)
        if answered.digest == asked.digest:
            return answered
    raise AssertionError("unreachable: the loop ends only with an answer")
