"""Find out whether the work of a run is unproved: it ended in words although its last check, edit or call had failed.

A run that is unproved has still succeeded. Calls that only read are not looked at, since their failures can be the
answer.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ..values.action import Action
from ..values.event import (
    ActionBegan,
    ActionRefused,
    Checked,
    Entry,
    OperationEnded,
    ToolAnswered,
    ToolCalled,
    WorkerReturned,
)
from ..values.plain_text import truncate_text
from ..values.tool_table import CHANGING_TOOLS

CHECKING_TOOL = "run_checks"
COMMAND_TOOL = "bash"
PROVING_EVENTS = (ActionBegan, ActionRefused, Checked, OperationEnded, ToolAnswered, ToolCalled, WorkerReturned)
"""The events that `WorkProof` reads."""
LONGEST_REASON = 160
ONLY_TESTS = "it changed only tests that were there before"
_MEMBER = re.compile(r"/[^/:]+:([^/]+?)#\d+(?:~\d+)?$")
"""The name of the agent at the end of a path of an operation."""
_FAILED_CHECK = re.compile(r"FAIL (.+?)(?=, (?:PASS|FAIL) |$)")


@dataclass(slots=True)
class _Evidence:
    """What speaks against the work of one operation. Each text is empty unless the last call of its kind failed."""

    agent: str
    checks: dict[str, str] = field(default_factory=dict)
    """The failed checks, keyed by name."""
    edit: str = ""
    command: str = ""
    calls: dict[str, str] = field(default_factory=dict)
    """The failed calls to other tools, keyed by tool."""
    refused: str = ""
    worker: str = ""
    doubt: str = ""
    """The reason of a pattern that looked at the whole work."""
    has_acted: bool = False
    has_edited: bool = False

    def find_problem(self) -> str:
        """Return why the operation's work is unproved, or an empty string."""
        problems = (
            *self.checks.values(),
            "" if self.has_acted else self.refused,
            self.edit,
            # A command that fails can be the answer to a question, but not the end of a change.
            self.command if self.has_edited else "",
            *self.calls.values(),
            self.doubt,
        )
        problem = next(filter(None, problems), "")
        return f"{self.agent}: {problem}" if problem else self.worker


class WorkProof:
    """Collects what the calls of a run's operations prove, entry by entry."""

    def __init__(self) -> None:
        self._running: dict[str, Action] = {}
        """The running calls, keyed by scope."""
        self._begun: set[str] = set()
        self._refusals: dict[str, str] = {}
        self._operations: dict[str, _Evidence] = {}

    def apply(self, entry: Entry) -> None:
        """Apply the next entry, with one of `PROVING_EVENTS`."""
        match entry.event:
            case ToolCalled(action=action):
                self._running[entry.scope] = action
            case ActionBegan(action=action) if entry.scope in self._running:
                self._running[entry.scope] = action
                self._begun.add(entry.scope)
            case ActionRefused(reason=reason) if entry.scope in self._running:
                self._refusals[entry.scope] = reason
            case ToolAnswered() as answered if (called := self._running.pop(entry.scope, None)) is not None:
                is_begun = entry.scope in self._begun
                self._begun.discard(entry.scope)
                self._add_answer(entry, called, answered, is_begun=is_begun)
            case Checked(passed=True):
                self._clear_checks()
            case OperationEnded(outcome=outcome) if outcome != "succeeded":
                self._operations.pop(entry.scope, None)
            case OperationEnded(unproved=unproved):
                agent, _, problem = unproved.partition(": ")
                if problem.startswith(ONLY_TESTS):
                    self.add_doubt(entry.scope, agent, problem)
            case WorkerReturned(unproved=unproved, run=run):
                member = _MEMBER.search(entry.operation)
                of = self._find_evidence(f"{entry.operation}/{run}", agent=run if member is None else member[1])
                of.worker = unproved

    def find_problem(self, path: str) -> str:
        """Return why the work at and below an operation is unproved, or an empty string.

        If an agent has worked several times, its last work counts.
        """
        last: dict[str, _Evidence] = {}
        for operation, evidence in self._operations.items():
            if operation == path or operation.startswith(f"{path}/"):
                last[evidence.agent] = evidence
        return "; ".join(problem for evidence in last.values() if (problem := evidence.find_problem()))

    def add_doubt(self, operation: str, agent: str, doubt: str) -> None:
        """Mark the work of an operation that is about to end as unproved."""
        self._find_evidence(operation, agent=agent).doubt = doubt

    def forget(self, operation: str) -> None:
        """Forget what the calls of an operation prove."""
        self._operations.pop(operation, None)

    def _find_evidence(self, operation: str, *, agent: str) -> _Evidence:
        return self._operations.setdefault(operation, _Evidence(agent))

    def _add_answer(self, entry: Entry, action: Action, answered: ToolAnswered, *, is_begun: bool) -> None:
        tool, refusal = action.tool, self._refusals.pop(entry.scope, "")
        if not (is_begun or refusal or tool in CHANGING_TOOLS):
            return
        of = self._find_evidence(entry.operation, agent=action.agent)
        if refusal:
            self._add_refusal(of, action, refusal)
            return
        of.has_acted |= is_begun and not (tool in CHANGING_TOOLS and answered.is_error)
        if tool == CHECKING_TOOL:
            self._add_check(of, action, answered)
        elif tool in CHANGING_TOOLS:
            of.edit = _explain_edit(action, answered)
            of.has_edited |= not of.edit
            if not of.edit:
                self._clear_edits()
        elif tool == COMMAND_TOOL:
            command = _shorten(str(action.arguments.get("command", "")))
            of.command = f"its last command failed: {command}" if answered.is_error else ""
        elif answered.is_error:
            of.calls[tool] = f"its last call to {tool} failed: {_shorten(answered.text)}"
        else:
            of.calls.pop(tool, None)

    def _add_refusal(self, of: _Evidence, action: Action, reason: str) -> None:
        if action.tool == CHECKING_TOOL:
            of.checks[action.tool] = f"its last check was refused: {_shorten(reason)}"
        elif action.tool == COMMAND_TOOL:
            of.command = f"its last command was refused: {_shorten(str(action.arguments.get('command', '')))}"
        of.refused = f"its only call was refused: {action.tool} ({_shorten(reason)})"

    def _add_check(self, of: _Evidence, action: Action, answered: ToolAnswered) -> None:
        name = str(action.arguments.get("name") or CHECKING_TOOL)
        of.checks.pop(CHECKING_TOOL, None)
        names = name.split(", ")
        failed = names if len(names) == 1 else _FAILED_CHECK.findall(answered.text.partition("\n")[0])
        for one in names:
            of.checks.pop(one, None)
        if answered.is_error:
            of.checks |= {one: f"its last check failed: {one}" for one in failed or names}
        else:
            for other in self._operations.values():
                for one in names:
                    other.checks.pop(one, None)

    def _clear_checks(self) -> None:
        """Forget failed checks and commands, because a team's checks have passed on all of its work."""
        for evidence in self._operations.values():
            evidence.checks.clear()
            evidence.command = evidence.edit = ""

    def _clear_edits(self) -> None:
        """Forget failed edits, because a later one, perhaps of another agent, has changed what they should change."""
        for evidence in self._operations.values():
            evidence.edit = ""


def _explain_edit(action: Action, answered: ToolAnswered) -> str:
    """Return why an edit changed nothing, or an empty string if it changed a file."""
    if answered.is_error:
        return f"its last edit changed nothing: {_shorten(answered.text)}"
    is_same = bool(action.outputs) and all(
        content and content == action.inputs.get(path) for path, content in action.outputs.items()
    )
    return f"its last edit changed nothing: {', '.join(action.outputs)} has the same content as before" * is_same


def _shorten(text: str) -> str:
    return truncate_text(" ".join(text.split("\n", 1)[0].split()).rstrip("."), LONGEST_REASON)
