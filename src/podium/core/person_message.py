"""What the person says to an agent while it works: each message goes into one prompt, once."""

from __future__ import annotations

from ..values.event import MessageReceived, MessagesDelivered
from ..values.request import quoted, readable
from .scope import Scope
from .timeline import Timeline


def recalled(place: Scope) -> str:
    """The messages that were delivered at this place; nothing where none were."""
    known = place.at("messages").recall(MessagesDelivered)
    return "" if known is None else known.text


def delivered(place: Scope, agent: str) -> str:
    """What the person has said to the agent and no prompt has yet, delivered here."""
    if known := recalled(place):
        return known
    waiting = place.timeline.undelivered(agent)
    if not waiting:
        return ""
    text = "\n\n".join(_told(message, place.timeline) for message in waiting)
    place.at("messages").settle(MessagesDelivered(ids=tuple(message.id for message in waiting), text=text))
    return text


def _told(message: MessageReceived, timeline: Timeline) -> str:
    """A message with what came with it: texts in full, images as a mark in whose place a model is shown them."""
    told = [f"[message from {message.by or 'the person'}]{quoted(message.text)}"]
    for one in message.attachments:
        data = timeline.attached(one.digest)
        if data is None:
            told.append(f"[file {one.name}, which is not there any more]")
        elif one.is_image:
            told.append(one.mark)
        else:
            told.append(f"[file {one.name}]{quoted(timeline.redaction.text(readable(data.decode())))}")
    return "\n".join(told)
