"""What the person says to an agent while it works: each message goes into one prompt, once."""

from __future__ import annotations

from .event import MessagesDelivered
from .request import quoted
from .scope import Scope


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
    text = "\n\n".join(f"[message from {message.by or 'the person'}]{quoted(message.text)}" for message in waiting)
    place.at("messages").settle(MessagesDelivered(ids=tuple(message.id for message in waiting), text=text))
    return text
