"""`podium audit`: who approved what, by which rule, and what ran."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

import click

from ...runs.run_lookup import open_reader
from ...setup.settings import Settings
from ...values.action import Action
from ...values.event import SCHEMA, ActionBegan, ActionRefused, Entry, PermissionAnswered, PermissionAsked, ToolAnswered
from ..terminal.entry_text import parse_agent_name
from ..terminal.text import as_json, escape_for_terminal, print_to_stderr, truncate_line


@click.command("audit")
@click.argument("run")
@click.option("--json", "is_json", is_flag=True, help="Print the list as JSON.")
def audit_command(run: str, is_json: bool) -> None:
    """List every action of RUN that was allowed or refused: who decided or which rule, and what came of it."""
    with open_reader(Settings.load().store) as reader:
        id = reader.find_run(run)
        acts = list(audit_actions(reader.read_entries(id)))
    if is_json:
        click.echo(as_json({"schema": SCHEMA, "run": id, "actions": acts}))
    elif not acts:
        print_to_stderr(f"no agent of run {id} did anything that needed leave")
    else:
        for act in acts:
            click.echo(escape_for_terminal(format_action_line(act)))


def audit_actions(entries: Iterable[Entry]) -> Iterator[dict[str, Any]]:
    """Every action that needed leave, in order, with its request, its decision and its outcome."""
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
        "answers": [answers[one.id] for one in asked if one.id in answers],
        "outcome": None if decision == "refused" else "unknown",
    }


def format_action_line(act: dict[str, Any]) -> str:
    """An action on one line."""
    at = time.strftime("%H:%M:%S", time.localtime(act["at"]))
    what = truncate_line(" ".join(str(value) for value in act["arguments"].values()), 80)
    came_to = f" -> {act['outcome']}" if act["outcome"] else ""
    return f"{at}  {act['decision']:8} {act['agent']}: {act['tool']} {what} ({act['by']}){came_to}"
