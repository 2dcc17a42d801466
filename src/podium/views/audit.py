"""List the allowed and refused actions of a run, with the person or rule that decided, and the outcome."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..values.action import Action
from ..values.event import ActionBegan, ActionRefused, Entry, PermissionAnswered, PermissionAsked, ToolAnswered
from ..values.operation_path import parse_agent_name


def audit_actions(entries: Iterable[Entry]) -> Iterator[dict[str, Any]]:
    """Yield the fields of each action that was allowed or refused.

    The fields of an allowed action change after they are yielded: `outcome` is set when the tool's answer is read.
    """
    asked: dict[str, list[PermissionAsked]] = {}
    answers: dict[str, PermissionAnswered] = {}
    open_acts: dict[str, dict[str, Any]] = {}
    for entry in entries:
        match entry.event:
            case PermissionAsked() as event:
                asked.setdefault(entry.scope, []).append(event)
            case PermissionAnswered() as event:
                answers.setdefault(event.id, event)
            case ActionBegan(action=action, allowed_by=by):
                act = _action_fields(entry, action, "allowed", by, asked.get(entry.scope, []), answers)
                open_acts[entry.scope] = act
                yield act
            case ActionRefused(action=action, reason=reason):
                yield _action_fields(entry, action, "refused", reason, asked.get(entry.scope, []), answers)
            case ToolAnswered() as event if entry.scope in open_acts:
                act = open_acts.pop(entry.scope)
                act["outcome"] = "failed" if event.is_error else "done"


def _action_fields(
    entry: Entry,
    action: Action,
    decision: str,
    by: str,
    asked: list[PermissionAsked],
    answers: dict[str, PermissionAnswered],
) -> dict[str, Any]:
    given = [answers[one.id] for one in asked if one.id in answers]
    return {
        "seq": entry.seq,
        "at": entry.at,
        "agent": parse_agent_name(entry.operation),
        "tool": action.tool,
        "arguments": action.arguments,
        "action": action.id,
        "decision": decision,
        "by": by,
        "requests": [one.id for one in asked],
        "answers": given,
        "channel": given[-1].channel if given else "",
        "outcome": None if decision == "refused" else "unknown",
    }
