"""Turn the entries of a run into the session updates of the Agent Client Protocol: text, thoughts, tools and plans."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ..values.action import Action
from ..values.event import (
    Entry,
    Noticed,
    OperationEnded,
    PermissionAsked,
    PlanCommitted,
    PlanStepBlocked,
    PlanStepCompleted,
    PlanStepFailed,
    PlanStepReopened,
    PlanStepStarted,
    PlanStepUnblocked,
    TeamPlanned,
    ToolAnswered,
    ToolCalled,
    TurnEnded,
)
from ..values.json import JsonObject
from ..values.operation_path import parse_agent_name
from ..values.plain_text import truncate_text
from ..values.tool_table import TOOLS_BY_NAME
from ..views.answer_text import AnswerText
from ..views.request_text import escape_hidden_text, escape_in_line

Update = JsonObject

LONGEST_OUTPUT = 20_000
"""The maximum number of characters of a tool's output that are sent to the editor. The timeline has the full output."""


class SessionUpdates:
    """Turns the entries of one prompt's run into session updates."""

    def __init__(self) -> None:
        self._answer = AnswerText()
        self._calls: dict[bytes, str] = {}
        """The ids of tool calls that have started, keyed by their operation, tool and arguments."""
        self._plan: dict[str, dict[str, str]] = {}

    def apply(self, entry: Entry) -> Iterator[Update]:
        """Yield the updates for the next entry of the run."""
        if piece := self._answer.apply(entry):
            yield message_update(piece)
            return
        agent = parse_agent_name(entry.operation)
        match entry.event:
            case ToolCalled(id=id, action=action):
                self._calls[make_call_key(entry, action)] = _make_call_id(entry, id)
                yield {"sessionUpdate": "tool_call", **build_tool_call(_make_call_id(entry, id), action)}
            case ToolAnswered(id=id, text=text, is_error=is_error):
                yield {
                    "sessionUpdate": "tool_call_update",
                    "toolCallId": _make_call_id(entry, id),
                    "status": "failed" if is_error else "completed",
                    "content": [text_content(truncate_text(escape_hidden_text(text), LONGEST_OUTPUT))],
                }
            case TurnEnded(failure=None, text=text) if text and "/" in entry.operation:
                yield _thought_update(f"{escape_in_line(agent)}: {text}\n\n")
            case Noticed(text=text):
                yield _thought_update(f"{text}\n\n")
        if self._change_plan(entry):
            yield {"sessionUpdate": "plan", "entries": [dict(one) for one in self._plan.values()]}

    def finish(self, text: str) -> Iterator[Update]:
        """Yield the part of the final answer that was not streamed."""
        if rest := self._answer.finish(text):
            yield message_update(rest)

    def find_call_id(self, entry: Entry, asked: PermissionAsked) -> str:
        """Return the id of the tool call that a permission request is about."""
        return self._calls.get(make_call_key(entry, asked.action), asked.id)

    def _change_plan(self, entry: Entry) -> bool:
        """Apply an entry to the plan, and return whether the plan has changed."""
        match entry.event:
            case PlanCommitted(plan=plan):
                self._plan = {step.id: _plan_entry(f"{step.owner}: {step.description}") for step in plan.steps}
                return True
            case TeamPlanned(assignments=assignments):
                self._plan = {one.worker: _plan_entry(f"{one.worker}: {one.task}") for one in assignments}
                return True
            case PlanStepStarted(step=key) | PlanStepReopened(step=key) | PlanStepUnblocked(step=key):
                return self._set_status(key, "in_progress")
            case PlanStepBlocked(step=key):
                return self._set_status(key, "pending")
            case PlanStepCompleted(step=key) | PlanStepFailed(step=key):
                return self._set_status(key, "completed")
            case OperationEnded():
                return self._set_status(parse_agent_name(entry.operation), "completed")
        return False

    def _set_status(self, key: str, status: str) -> bool:
        found = self._plan.get(key)
        if found is None or found["status"] == status:
            return False
        found["status"] = status
        return True


def _make_call_id(entry: Entry, id: str) -> str:
    """Return an id for a tool call that is unique in the session."""
    return f"{entry.run}:{entry.operation}:{id}"


def make_call_key(entry: Entry, action: Action) -> bytes:
    """Return a key that is the same for a tool call and its permission request."""
    return msgspec.json.encode((entry.run, entry.operation, action.tool, action.arguments), order="sorted")


def build_tool_call(id: str, action: Action) -> JsonObject:
    """Return an action as a tool call."""
    subject = next((action.arguments[key] for key in ("command", "path", "url") if key in action.arguments), "")
    return {
        "toolCallId": id,
        "title": truncate_text(escape_in_line(f"{action.agent}: {action.tool} {subject}".strip()), 200),
        "kind": TOOLS_BY_NAME[action.tool].editor_kind if action.tool in TOOLS_BY_NAME else "other",
        "status": "pending",
        "rawInput": action.arguments,
    }


def _plan_entry(text: str) -> dict[str, str]:
    """Return the entry for a plan step that has not started."""
    return {"content": escape_hidden_text(text), "priority": "medium", "status": "pending"}


def message_update(text: str) -> Update:
    """Return the update for a piece of the answer."""
    return {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}


def user_update(text: str) -> Update:
    """Return the update that replays a user's earlier message when a session is loaded."""
    return {"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": text}}


def _thought_update(text: str) -> Update:
    """Return the update for text that is not part of the answer. Editors show such text as a thought."""
    return {"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": text}}


def text_content(text: str) -> JsonObject:
    """Return text as the content of a tool call."""
    return {"type": "content", "content": {"type": "text", "text": text}}
