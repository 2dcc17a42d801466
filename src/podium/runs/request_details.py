"""Describe the requests that are waiting for a person, with the text that all user interfaces show."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from msgspec import Struct

from ..policy.rule_examples import find_rule_examples
from ..store.open_requests import OpenRequest
from ..values.event import PermissionAsked, QuestionAsked, QuestionKind, RunStarted
from ..values.operation_path import parse_agent_name, parse_plan_step
from ..values.phase import Phase
from ..values.risk_fact import RiskKind
from ..views.request_text import (
    SANDBOXES,
    escape_hidden_text,
    escape_in_line,
    format_request_lines,
    format_risk,
)

RequestKind = Literal["permission"] | QuestionKind


class WaitingRequest(Struct, frozen=True, kw_only=True):
    """A request in a list of requests."""

    id: str
    run: str
    kind: RequestKind
    asked_at: float
    text: str

    @classmethod
    def of(cls, one: OpenRequest) -> WaitingRequest:
        """Return a request as it is listed."""
        return WaitingRequest(
            id=one.asked.id,
            run=one.summary.id,
            kind=describe_kind(one),
            asked_at=one.entry.at,
            text=describe_request(one),
        )


class RequestDetails(Struct, frozen=True, kw_only=True, tag_field="kind"):
    """What a person needs to decide on any request. Hidden characters in agents' text are escaped.

    `step` is the plan step that the request belongs to, and `plan_run` is the run with the plan; both are empty if
    there is none.
    """

    id: str
    run: str
    asked_at: float
    text: str
    state: Phase
    agent: str
    operation: str
    worker: str
    step: str
    plan_run: str
    goal: str
    seq: int
    shown: str


class QuestionDetails(RequestDetails, frozen=True, kw_only=True, tag="question"):
    """An agent's question."""

    question: str
    choices: list[str]
    digest: str


class PlanDetails(QuestionDetails, frozen=True, kw_only=True, tag="plan"):
    """A plan to approve."""


class DecisionDetails(QuestionDetails, frozen=True, kw_only=True, tag="decision"):
    """A decision to approve."""


class ReviewDetails(QuestionDetails, frozen=True, kw_only=True, tag="review"):
    """A review to approve."""


QUESTION_TYPES: dict[QuestionKind, type[QuestionDetails]] = {
    "question": QuestionDetails,
    "plan": PlanDetails,
    "decision": DecisionDetails,
    "review": ReviewDetails,
}


class ShownRisk(Struct, frozen=True, kw_only=True):
    """A risk of an action, as a sentence."""

    kind: RiskKind
    text: str


class PermissionDetails(RequestDetails, frozen=True, kw_only=True, tag="permission"):
    """An action that needs permission. `always` is the rule that would allow it from now on, with examples."""

    tool: str
    lines: list[str]
    directory: str
    sandbox: str
    reason: str
    agent_reason: str
    risks: list[ShownRisk]
    denied: list[str]
    always: str
    always_covers: list[str]
    always_does_not_cover: list[str]
    action_id: str
    same: str


AnyRequestDetails = PermissionDetails | QuestionDetails | PlanDetails | DecisionDetails | ReviewDetails


def describe_in_full(one: OpenRequest) -> AnyRequestDetails:
    """Return everything that a person needs to decide on a request."""
    step, plan_run = _find_step(one, one.summary.started)
    details: dict[str, Any] = {
        "id": one.asked.id,
        "run": one.summary.id,
        "asked_at": one.entry.at,
        "text": describe_request(one),
        "state": one.summary.phase,
        "agent": escape_in_line(parse_agent_name(one.entry.operation)),
        "operation": escape_in_line(one.entry.operation),
        "worker": escape_hidden_text(one.worker_name),
        "step": escape_in_line(step),
        "plan_run": plan_run,
        "goal": escape_hidden_text(one.summary.started.request.text),
        "seq": one.entry.seq,
        "shown": escape_hidden_text(one.asked.shown),
    }
    asked = one.asked
    if isinstance(asked, QuestionAsked):
        question, choices = escape_hidden_text(asked.text), _escape_each(asked.choices)
        return QUESTION_TYPES[asked.kind](**details, question=question, choices=choices, digest=asked.digest)
    action = asked.action
    covered, not_covered = find_rule_examples(asked.always, action) if asked.always else ((), ())
    return PermissionDetails(
        **details,
        tool=escape_in_line(action.tool),
        lines=_escape_each(format_request_lines(asked)),
        directory=escape_hidden_text(action.directory),
        sandbox=SANDBOXES.get(action.sandbox, action.sandbox),
        reason=escape_hidden_text(asked.reason),
        agent_reason=escape_hidden_text(asked.agent_reason),
        risks=[ShownRisk(kind=fact.kind, text=format_risk(fact)) for fact in asked.risks],
        denied=_escape_each(asked.denied),
        always=escape_hidden_text(asked.always),
        always_covers=_escape_each(covered),
        always_does_not_cover=_escape_each(not_covered),
        action_id=action.id,
        same=action.effect_hash,
    )


def _escape_each(texts: Iterable[str]) -> list[str]:
    return [escape_hidden_text(text) for text in texts]


def _find_step(one: OpenRequest, started: RunStarted) -> tuple[str, str]:
    """Return the plan step that a request belongs to, and the run with the plan; both are empty if there is none.

    The plan of a step that a worker carries out is on the timeline of the run that started the worker.
    """
    if step := parse_plan_step(one.entry.operation):
        return step, one.summary.id
    task = started.errand
    step = "" if task is None else parse_plan_step(task.operation)
    return step, task.parent if task is not None and step else ""


def describe_kind(one: OpenRequest) -> RequestKind:
    """Return the kind of a request, such as `permission`."""
    return "permission" if isinstance(one.asked, PermissionAsked) else one.asked.kind


def describe_request(one: OpenRequest) -> str:
    """Return what a request is about, in one line."""
    if not isinstance(one.asked, PermissionAsked):
        return escape_hidden_text(" ".join(one.asked.text.split()))
    action = one.asked.action
    subject = next((action.arguments[key] for key in ("command", "path", "url") if key in action.arguments), "")
    return escape_hidden_text(" ".join(f"{action.tool} {subject}".split()))
