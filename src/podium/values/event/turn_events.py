"""Events of a turn: streamed text, model calls and tool calls."""

from typing import Any, ClassVar

from msgspec import Struct

from ..action import Action
from ..errors import Failure
from ..request import Outcome
from ..usage import Usage
from .base_event import EventBase


class ToolUse(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool call by the model."""

    id: str
    name: str
    arguments: dict[str, Any] = {}
    unreadable: str = ""
    """The arguments as received, if they were not a JSON object."""
    is_from_text: bool = False
    """Whether the model wrote the call as text, instead of using the tool interface."""
    is_emulated: bool = False
    """Whether the model was asked to write its calls as text."""


class TurnStarted(EventBase, frozen=True, kw_only=True, tag="turn_started"):
    """A prompt was sent to a session.

    If `is_correction` is true, the previous reply could not be used and is no longer part of the conversation.
    """

    agent: str
    engine: str
    prompt: str
    is_correction: bool = False


class TurnResumed(EventBase, frozen=True, kw_only=True, tag="turn_resumed"):
    """A turn continues after its process stopped. The text that the turn had streamed until then is superseded."""


class TurnEnded(EventBase, frozen=True, kw_only=True, tag="turn_ended"):
    """A turn ended, with a reply or with a failure."""

    outcome: Outcome
    text: str = ""
    calls: tuple[ToolUse, ...] = ()
    failure: Failure | None = None


class SessionRevived(EventBase, frozen=True, kw_only=True, tag="session_revived"):
    """A new engine session replaced a session that returned an empty reply; the prompt is sent again."""

    agent: str
    reason: str


class AgentSessionOpened(EventBase, frozen=True, kw_only=True, tag="agent_session_opened"):
    """A coding agent opened its own session. If the agent's process dies, a new process loads the session by its id."""

    agent: str
    engine: str
    session: str
    version: str = ""
    mode: str = ""


class TextStreamed(EventBase, frozen=True, kw_only=True, tag="text_streamed"):
    """A streamed piece of a reply."""

    text: str


class ReasoningStreamed(EventBase, frozen=True, kw_only=True, tag="reasoning_streamed"):
    """A streamed piece of the reasoning before a reply."""

    text: str


class TextSuperseded(EventBase, frozen=True, kw_only=True, tag="text_superseded"):
    """The model is called again, so the text streamed since the last tool call is discarded."""


class ModelReplied(EventBase, frozen=True, kw_only=True, tag="model_replied"):
    """A model call completed."""

    model: str
    text: str = ""
    reasoning: str = ""
    calls: tuple[ToolUse, ...] = ()
    stop: str = ""
    sealed: str = ""
    """Data to send back to the provider unchanged with this reply, such as signed reasoning; nothing else reads it."""
    usage: Usage = Usage()
    replied_model: str = ""
    """The model that the reply names, if it is not the requested one."""


class ModelAskedAgain(EventBase, frozen=True, kw_only=True, tag="model_asked_again"):
    """A model's reply could not be used, so the model was asked again in the same turn, with `prompt`."""

    reason: str
    prompt: str


class CallFailed(EventBase, frozen=True, kw_only=True, tag="call_failed"):
    """A model call failed; `wait` is the delay before the next attempt, or None if this model is not tried again.

    If `is_unknown_model` is true, the provider has no such model, so later calls do not try it either. If `until` is
    not 0, the provider accepts no calls before that time, in seconds since the epoch. `provider` is empty in older
    runs.
    """

    model: str
    message: str
    wait: float | None = None
    is_too_long: bool = False
    is_unknown_model: bool = False
    usage: Usage = Usage()
    until: float = 0.0
    provider: str = ""


class LimitReached(EventBase, frozen=True, kw_only=True, tag="limit_reached"):
    """All of an agent's models have reached their providers' limits. The agent waits until the first limit resets.

    `until` is that time in seconds since the epoch, `model` and `provider` identify the model that is called then, and
    `message` is what its provider said.
    """

    survives_power_loss: ClassVar[bool] = True

    agent: str
    model: str
    provider: str
    until: float
    message: str = ""


class ContextCompacted(EventBase, frozen=True, kw_only=True, tag="context_compacted"):
    """A conversation almost filled or exceeded its model's context window; a summary replaced its first messages."""

    summary: str
    replaced: int
    tries: int = 0
    """How many attempts at the call had been made when the model rejected it as too long."""


class CallCut(EventBase, frozen=True, kw_only=True, tag="call_cut"):
    """A model call was cancelled. `text` and `usage` are the text received and the tokens used by then, if known."""

    model: str
    text: str = ""
    usage: Usage = Usage()


class ToolCalled(EventBase, frozen=True, kw_only=True, tag="tool_called"):
    """A tool call started; `is_from_text` says whether the model wrote the call as text.

    `is_emulated` says whether the model was asked to do so.
    """

    id: str
    action: Action
    is_from_text: bool = False
    is_emulated: bool = False


class ToolAnswered(EventBase, frozen=True, kw_only=True, tag="tool_answered"):
    """A tool call ended."""

    id: str
    text: str
    is_error: bool = False
    is_timed_out: bool = False


TurnEvent = (
    TurnStarted
    | TurnResumed
    | TurnEnded
    | SessionRevived
    | AgentSessionOpened
    | TextStreamed
    | ReasoningStreamed
    | TextSuperseded
    | ModelReplied
    | ModelAskedAgain
    | CallFailed
    | LimitReached
    | ContextCompacted
    | CallCut
    | ToolCalled
    | ToolAnswered
)
