"""Events about permission requests, questions to a person, their answers, and the actions that follow."""

from typing import ClassVar, Literal

from ..action import Action
from ..actor import Channel
from ..plan import WorkPlan
from ..risk_fact import RiskFact
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
