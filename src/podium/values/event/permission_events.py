"""Requests for permission, questions to a person, their answers, and what was done or refused."""

from __future__ import annotations

from typing import ClassVar, Literal

from ..action import Action
from .base_event import EventBase

Decision = Literal["once", "run", "always", "deny", "deny_and_pause", "abort"]
"""How a request for permission may be answered; all but the first three refuse."""


class PermissionAsked(EventBase, frozen=True, kw_only=True, tag="permission_asked"):
    """An agent wants to do something that a person decides on; nothing is done before there is an answer.

    `shown` is what the action would do, such as a diff, and `reason` the rule, or the lack of one, that asks.
    `always` is the rule that would allow it and its like for good; empty where that is not safe to offer.
    `denied` tells of earlier refusals of the same.
    """

    survives_power_loss: ClassVar[bool] = True

    id: str
    action: Action
    reason: str
    shown: str = ""
    always: str = ""
    denied: tuple[str, ...] = ()


class PermissionAnswered(EventBase, frozen=True, kw_only=True, tag="permission_answered"):
    """The request of this id was decided, once and for all.

    `at` is when the person answered, and `rule` what was allowed for good with the answer.
    """

    survives_power_loss: ClassVar[bool] = True

    id: str
    decision: Decision
    by: str = ""
    comment: str = ""
    rule: str = ""
    at: float = 0.0

    @property
    def is_allowed(self) -> bool:
        return self.decision in ("once", "run", "always")


class QuestionAsked(EventBase, frozen=True, kw_only=True, tag="question_asked"):
    """An agent asked the person something."""

    survives_power_loss: ClassVar[bool] = True

    id: str
    text: str
    choices: tuple[str, ...] = ()


class QuestionAnswered(EventBase, frozen=True, kw_only=True, tag="question_answered"):
    """The question of this id has its answer."""

    survives_power_loss: ClassVar[bool] = True

    id: str
    text: str
    by: str = ""


class ActionBegan(EventBase, frozen=True, kw_only=True, tag="action_began"):
    """An action was allowed and is carried out from here on; `allowed_by` is who or which rule."""

    survives_power_loss: ClassVar[bool] = True

    action: Action
    allowed_by: str
    is_repeatable: bool = False
    """Whether it may simply be done again, so that nothing hangs on this surviving a loss of power."""


class ActionRefused(EventBase, frozen=True, kw_only=True, tag="action_refused"):
    """An action was not carried out; `reason` says who or which rule stood against it."""

    action: Action
    reason: str
