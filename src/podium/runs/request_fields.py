"""Return the requests that are waiting for a person as JSON fields, with the text that all user interfaces show."""

from __future__ import annotations

from typing import Any

from ..policy.rule_examples import find_rule_examples
from ..store.open_requests import OpenRequest
from ..values.event import PermissionAsked, RunStarted
from ..values.operation_path import parse_agent_name, parse_plan_step
from ..views.request_text import (
    SANDBOXES,
    escape_hidden_text,
    escape_in_line,
    format_request_lines,
    format_risk,
)


def describe_kind(one: OpenRequest) -> str:
    """Return the kind of a request, such as `permission`."""
    return "permission" if isinstance(one.asked, PermissionAsked) else one.asked.kind


def describe_request(one: OpenRequest) -> str:
    """Return what a request is about, in one line."""
    if not isinstance(one.asked, PermissionAsked):
        return escape_hidden_text(" ".join(one.asked.text.split()))
    action = one.asked.action
    subject = next((action.arguments[key] for key in ("command", "path", "url") if key in action.arguments), "")
    return escape_hidden_text(" ".join(f"{action.tool} {subject}".split()))


def waiting_fields(one: OpenRequest) -> dict[str, Any]:
    """Return the JSON fields that describe a request in a list of requests."""
    return {
        "id": one.asked.id,
        "run": one.summary.id,
        "kind": describe_kind(one),
        "asked_at": one.entry.at,
        "text": describe_request(one),
    }


def whole_request_fields(one: OpenRequest) -> dict[str, Any]:
    """Return everything that a person needs to decide on a request. Hidden characters in agents' text are escaped."""
    started = one.summary.started
    fields = waiting_fields(one) | {
        "state": one.summary.phase,
        "agent": escape_in_line(parse_agent_name(one.entry.operation)),
        "operation": escape_in_line(one.entry.operation),
        "worker": escape_hidden_text(one.worker_name),
        **_step_fields(one, started),
        "goal": escape_hidden_text(started.request.text),
        "seq": one.entry.seq,
    }
    if isinstance(one.asked, PermissionAsked):
        return fields | _permission_fields(one.asked)
    return fields | {
        "question": escape_hidden_text(one.asked.text),
        "choices": [escape_hidden_text(choice) for choice in one.asked.choices],
        "shown": escape_hidden_text(one.asked.shown),
        "digest": one.asked.digest,
    }


def _step_fields(one: OpenRequest, started: RunStarted) -> dict[str, Any]:
    """Return the plan step that a request belongs to, and the run with the plan; both are empty if there is none.

    The plan of a step that a worker carries out is on the timeline of the run that started the worker.
    """
    if step := parse_plan_step(one.entry.operation):
        return {"step": escape_in_line(step), "plan_run": one.summary.id}
    task = started.errand
    step = "" if task is None else parse_plan_step(task.operation)
    return {"step": escape_in_line(step), "plan_run": task.parent if task is not None and step else ""}


def _permission_fields(asked: PermissionAsked) -> dict[str, Any]:
    action = asked.action
    covered, not_covered = find_rule_examples(asked.always, action) if asked.always else ((), ())
    return {
        "tool": escape_in_line(action.tool),
        "lines": [escape_hidden_text(line) for line in format_request_lines(asked)],
        "directory": escape_hidden_text(action.directory),
        "sandbox": SANDBOXES.get(action.sandbox, action.sandbox),
        "reason": escape_hidden_text(asked.reason),
        "agent_reason": escape_hidden_text(asked.agent_reason),
        "shown": escape_hidden_text(asked.shown),
        "risks": [{"kind": fact.kind, "text": format_risk(fact)} for fact in asked.risks],
        "denied": [escape_hidden_text(denial) for denial in asked.denied],
        "always": escape_hidden_text(asked.always),
        "always_covers": [escape_hidden_text(example) for example in covered],
        "always_does_not_cover": [escape_hidden_text(example) for example in not_covered],
        "action_id": action.id,
        "same": action.effect_hash,
    }
