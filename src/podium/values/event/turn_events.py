"""Events of a turn: what the engine says, the model calls and the tool calls."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ..action import Action
from ..errors import Failure
from ..request import Outcome
from ..usage import Usage
from .base_event import EventBase


class ToolUse(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool call as the model made it."""

    id: str
    name: str
    arguments: dict[str, Any] = {}
    unreadable: str = ""
    """The arguments as received, where they were not a JSON object."""


class TurnStarted(EventBase, frozen=True, kw_only=True, tag="turn_started"):
    """A session was given a prompt."""

    agent: str
    engine: str
    prompt: str


class TurnResumed(EventBase, frozen=True, kw_only=True, tag="turn_resumed"):
    """The turn was under way when its process died, and goes on; what it had streamed is superseded."""


class TurnEnded(EventBase, frozen=True, kw_only=True, tag="turn_ended"):
    """The session came back with a reply, or with the reason why there is none."""

    outcome: Outcome
    text: str = ""
    calls: tuple[ToolUse, ...] = ()
    failure: Failure | None = None


class SessionRevived(EventBase, frozen=True, kw_only=True, tag="session_revived"):
    """A fresh session took the place of one that had nothing to say; it got the whole prompt again."""

    agent: str
    reason: str


class TextStreamed(EventBase, frozen=True, kw_only=True, tag="text_streamed"):
    """A piece of a reply, as it came."""

    text: str


class ReasoningStreamed(EventBase, frozen=True, kw_only=True, tag="reasoning_streamed"):
    """A piece of the thinking before a reply, as it came."""

    text: str


class TextSuperseded(EventBase, frozen=True, kw_only=True, tag="text_superseded"):
    """The model is asked again; what this call had streamed no longer counts."""


class ModelReplied(EventBase, frozen=True, kw_only=True, tag="model_replied"):
    """A model call came to its end."""

    model: str
    text: str = ""
    reasoning: str = ""
    calls: tuple[ToolUse, ...] = ()
    stop: str = ""
    sealed: str = ""
    """What the provider wants back unchanged with this reply, such as signed thinking; nobody else reads it."""
    usage: Usage = Usage()


class CallFailed(EventBase, frozen=True, kw_only=True, tag="call_failed"):
    """A model call failed; `wait` is how long the next attempt was put off, None when this model is not tried again."""

    model: str
    message: str
    wait: float | None = None
    is_too_long: bool = False
    usage: Usage = Usage()


class ContextCompacted(EventBase, frozen=True, kw_only=True, tag="context_compacted"):
    """A conversation came near the end of what its model can read: a summary took the place of its first messages."""

    summary: str
    replaced: int
    tries: int = 0
    """How many tries of the call had been made before, which the model said were too long."""


class CallCut(EventBase, frozen=True, kw_only=True, tag="call_cut"):
    """A model call was cancelled; what it had said and cost until then, as far as is known."""

    model: str
    text: str = ""
    usage: Usage = Usage()


class ToolCalled(EventBase, frozen=True, kw_only=True, tag="tool_called"):
    """A tool call began."""

    id: str
    action: Action


class ToolAnswered(EventBase, frozen=True, kw_only=True, tag="tool_answered"):
    """A tool call is over."""

    id: str
    text: str
    is_error: bool = False
    is_timed_out: bool = False
