"""List the allowed and refused actions of a run, with the person or rule that decided, and the outcome."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

from msgspec import Struct

from ..values.event import ActionBegan, ActionRefused, Entry, PermissionAnswered, PermissionAsked, ToolAnswered
from ..values.operation_path import parse_agent_name


class AuditedAction(Struct, kw_only=True):
    """An action that was allowed or refused. `by` is the person or rule that decided.

    The outcome of an allowed action is `unknown` until the tool answers.
    """

    seq: int
    at: float
    agent: str
    tool: str
    arguments: dict[str, Any]
    action: str
    decision: Literal["allowed", "refused"]
    by: str
    requests: list[str]
    answers: list[PermissionAnswered]
    channel: str
    outcome: Literal["unknown", "done", "failed"] | None


def audit_actions(entries: Iterable[Entry]) -> Iterator[AuditedAction]:
    """Yield each action that was allowed or refused. The outcome of an action can change after it is yielded."""
    asked: dict[str, list[PermissionAsked]] = {}
    answers: dict[str, PermissionAnswered] = {}
    open_acts: dict[str, AuditedAction] = {}
    for entry in entries:
        match entry.event:
            case PermissionAsked() as event:
                asked.setdefault(entry.scope, []).append(event)
            case PermissionAnswered() as event:
                answers.setdefault(event.id, event)
            case ActionBegan(action=action, allowed_by=by) | ActionRefused(action=action, reason=by):
                requests = [one.id for one in asked.get(entry.scope, [])]
                given = [answers[id] for id in requests if id in answers]
                is_allowed = isinstance(entry.event, ActionBegan)
                act = AuditedAction(
                    seq=entry.seq,
                    at=entry.at,
                    agent=parse_agent_name(entry.operation),
                    tool=action.tool,
                    arguments=action.arguments,
                    action=action.id,
                    decision="allowed" if is_allowed else "refused",
                    by=by,
                    requests=requests,
                    answers=given,
                    channel=given[-1].channel if given else "",
                    outcome="unknown" if is_allowed else None,
                )
                if is_allowed:
                    open_acts[entry.scope] = act
                yield act
            case ToolAnswered() as event if entry.scope in open_acts:
                open_acts.pop(entry.scope).outcome = "failed" if event.is_error else "done"
