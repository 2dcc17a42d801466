"""Describe the requests that are waiting for a person, with the text that all user interfaces show."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

from msgspec import Struct, structs

from ...policy.rule_examples import find_rule_examples
from ...store.open_requests import OpenRequest
from ...values.action import RiskKind
from ...values.column import DocumentPart
from ...values.event import PermissionAsked, QuestionAsked, QuestionKind, RunStarted
from ...values.operation_path import parse_agent_name, parse_plan_step
from ...values.phase import Phase
from ...views.request_text import (
    SANDBOXES,
    escape_hidden_text,
    escape_in_line,
    format_request_lines,
    format_risk,
)

RequestKind = Literal["permission"] | QuestionKind
Details = TypeVar("Details", bound="RequestDetails")


class WaitingRequest(Struct, frozen=True, kw_only=True):
    """A request in a list of requests."""

    id: str
    run: str
    kind: RequestKind
    asked_at: float
    text: str


class RequestDetails(DocumentPart, frozen=True, kw_only=True, tag_field="kind"):
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


class ShownRisk(DocumentPart, frozen=True, kw_only=True):
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
QUESTION_TYPES: dict[QuestionKind, type[QuestionDetails]] = {
    "question": QuestionDetails,
    "plan": PlanDetails,
    "decision": DecisionDetails,
    "review": ReviewDetails,
}


def list_request(one: OpenRequest) -> WaitingRequest:
    """Return a request as it is listed."""
    id, run, kind, text = one.asked.id, one.summary.id, describe_kind(one), describe_request(one)
    return WaitingRequest(id=id, run=run, kind=kind, asked_at=one.entry.at, text=text)


def describe_in_full(one: OpenRequest) -> AnyRequestDetails:
    """Return everything that a person needs to decide on a request."""
    asked, started, operation = one.asked, one.summary.started, one.entry.operation
    step, plan_run = _find_step(operation, one.summary.id, started)
    shared = {
        "run": one.summary.id,
        "asked_at": one.entry.at,
        "text": describe_request(one),
        "state": one.summary.phase,
        "agent": escape_in_line(parse_agent_name(operation)),
        "operation": escape_in_line(operation),
        "worker": one.worker_name,
        "step": escape_in_line(step),
        "plan_run": plan_run,
        "goal": started.request.text,
        "seq": one.entry.seq,
    }
    if isinstance(asked, QuestionAsked):
        return _escape(QUESTION_TYPES[asked.kind].of(asked, question=asked.text, **shared))
    action = asked.action
    covered, not_covered = find_rule_examples(asked.always, action) if asked.always else ((), ())
    details = PermissionDetails.of(
        asked,
        tool=escape_in_line(action.tool),
        lines=format_request_lines(asked),
        directory=action.directory,
        sandbox=SANDBOXES.get(action.sandbox, action.sandbox),
        risks=[ShownRisk(kind=fact.kind, text=format_risk(fact)) for fact in asked.risks],
        always_covers=covered,
        always_does_not_cover=not_covered,
        action_id=action.id,
        same=action.effect_hash,
        **shared,
    )
    return _escape(details)


def _escape(details: Details) -> Details:
    """Escape the hidden characters in all texts."""
    return structs.replace(details, **{name: _escape_text(value) for name, value in structs.asdict(details).items()})


def _escape_text(value: Any) -> Any:
    if isinstance(value, str):
        return escape_hidden_text(value)
    return [_escape_text(one) for one in value] if isinstance(value, list | tuple) else value


def _find_step(operation: str, run: str, started: RunStarted) -> tuple[str, str]:
    """Return the plan step that an operation belongs to, and the run with the plan.

    The plan of a step that a worker carries out is on the timeline of the run that started the worker.
    """
    if step := parse_plan_step(operation):
        return step, run
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
