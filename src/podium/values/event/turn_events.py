"""Events of a turn: streamed text, model calls, tool calls, and the requests and questions to a person."""

from typing import Any, ClassVar, Literal

from msgspec import Struct

from ..action import Action, RiskFact
from ..actor import Channel
from ..errors import Failure
from ..plan import WorkPlan
from ..request import Outcome
from ..usage import Usage
from .base_event import ActorEvent, EventBase

Decision = Literal["once", "run", "always", "deny", "deny_and_pause", "abort"]
"""The possible answers to a permission request; the first three allow it, and the others deny it."""
QuestionKind = Literal["question", "plan", "decision", "review"]


class PermissionAsked(EventBase, frozen=True, kw_only=True, tag="permission_asked"):
    """An agent requested permission for an action, which is executed only if the answer allows it.

    `shown` shows what the action would do, such as a diff. `reason` says why permission is required, for example which
    rule requires it. `always` is the rule that would allow this and similar actions permanently; it is empty if that is
    not safe to offer. `denied` lists earlier denials of the same action. `risks` lists facts about the action that a
    person should notice. `agent_reason` is the end of the text that the agent wrote before the call; it is untrusted,
    like everything that an agent writes.
    """

    survives_power_loss: ClassVar[bool] = True

    id: str
    action: Action
    reason: str
    shown: str = ""
    always: str = ""
    denied: tuple[str, ...] = ()
    risks: tuple[RiskFact, ...] = ()
    agent_reason: str = ""


class PermissionAnswered(ActorEvent, frozen=True, kw_only=True, tag="permission_answered"):
    """The permission request with this id was answered; the answer is final.

    `by` is Podium's name if it answered itself. `at` is the time of the answer.
    `rule` is the rule that was saved with the answer to allow such actions permanently, if any.
    """

    survives_power_loss: ClassVar[bool] = True

    id: str
    decision: Decision
    by: str = ""
    comment: str = ""
    rule: str = ""
    at: float = 0.0
    channel: Channel = ""

    @property
    def is_allowed(self) -> bool:
        return self.decision in ("once", "run", "always")


class QuestionAsked(EventBase, frozen=True, kw_only=True, tag="question_asked"):
    """An agent asked the user a question, or asked for approval of a plan, a decision or a review.

    `shown` is the full text of the plan, decision or review, and `digest` is its hash. The answer applies only to
    exactly this text. `plan` is the plan to approve.
    """

    survives_power_loss: ClassVar[bool] = True

    id: str
    text: str
    choices: tuple[str, ...] = ()
    kind: QuestionKind = "question"
    shown: str = ""
    digest: str = ""
    plan: WorkPlan | None = None


class QuestionAnswered(ActorEvent, frozen=True, kw_only=True, tag="question_answered"):
    """The question with this id was answered.

    `digest` is the hash of the text that the user saw. `plan` is the plan as the user edited it, if it was edited.
    """

    survives_power_loss: ClassVar[bool] = True

    id: str
    text: str
    by: str = ""
    digest: str = ""
    plan: WorkPlan | None = None
    channel: Channel = ""


class ActionBegan(EventBase, frozen=True, kw_only=True, tag="action_began"):
    """An action was allowed and starts now; `allowed_by` is the person or rule that allowed it."""

    survives_power_loss: ClassVar[bool] = True

    action: Action
    allowed_by: str
    is_repeatable: bool = False
    """Whether the action can safely be executed again. If so, this event does not have to survive a power loss."""


class ActionRefused(EventBase, frozen=True, kw_only=True, tag="action_refused"):
    """An action was not executed; `reason` says why, for example which person or rule denied it."""

    action: Action
    reason: str


PermissionEvent = PermissionAsked | PermissionAnswered | QuestionAsked | QuestionAnswered | ActionBegan | ActionRefused


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
