"""Return the view of a run as JSON fields.

The dashboard builds the same fields in the browser (`run_view.mjs`); a test compares the two.
"""

from __future__ import annotations

from typing import Any

from msgspec import structs, to_builtins

from ..values.event import Entry, PermissionAsked, QuestionAsked
from .run_view import OperationNode, RunView


def run_view_fields(view: RunView) -> dict[str, Any]:
    """Return the state of a run after the entries that have been applied, with its tree of operations."""
    started, result = view.started, view.build_result()
    return {
        "run": view.run,
        "agent": "" if started is None else started.agent,
        "request": "" if started is None else started.request.text,
        "started_at": view.started_at,
        "at": view.at,
        "seq": view.seq,
        "state": "paused" if view.is_paused else view.phase,
        "is_aborted": view.is_aborted,
        "text": result.text,
        "error": result.error,
        "unproved": result.unproved,
        "parts": to_builtins(result.parts),
        "notices": list(view.notices),
        "refusals": [{"tool": one.action.tool, "reason": one.reason} for one in view.refusals],
        "requests": [open_request_fields(id, entry) for id, entry in view.requests.list_open(now=view.at).items()],
        "usage": structs.asdict(view.usage),
        "root": None if view.root is None else operation_fields(view.root),
    }


def open_request_fields(id: str, entry: Entry) -> dict[str, Any]:
    """Return an open permission request or question as JSON fields."""
    kind, tool, text = "permission", "", ""
    match entry.event:
        case PermissionAsked(action=action):
            tool = action.tool
        case QuestionAsked() as asked:
            kind, text = asked.kind, asked.text
    return {
        "id": id,
        "kind": kind,
        "operation": entry.operation,
        "seq": entry.seq,
        "at": entry.at,
        "tool": tool,
        "text": text,
    }


def operation_fields(node: OperationNode) -> dict[str, Any]:
    """Return an operation, with everything below it, as JSON fields."""
    return {
        "path": node.path,
        "agent": node.agent,
        "trigger": node.trigger,
        "request": node.request.text,
        "started": node.started,
        "ended": node.ended,
        "outcome": node.outcome,
        "activity": node.activity,
        "status": node.status,
        "engine": node.engine,
        "text": node.text,
        "draft": node.draft,
        "data": node.data,
        "parts": to_builtins(node.parts),
        "failure": None if node.failure is None else str(node.failure),
        "mode": None if node.team is None else node.team.mode,
        "members": list(node.members),
        "own_usage": structs.asdict(node.own_usage),
        "usage": structs.asdict(node.usage),
        "children": [operation_fields(child) for child in node.children],
    }
