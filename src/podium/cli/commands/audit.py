"""`podium audit`: list the actions allowed and denied in a run, and the person or rule that decided each."""

from __future__ import annotations

import time

import click

from ...files.settings import Settings
from ...runs import find
from ...runs.queries.run_lookup import open_reader
from ...values.event import SCHEMA
from ...views.audit import AuditedAction, audit_actions
from ..terminal.text import as_json, escape_for_terminal, print_to_stderr, truncate_line


@click.command("audit")
@click.argument("run")
@click.option("--json", "is_json", is_flag=True, help="Print the list as JSON.")
def audit_command(run: str, is_json: bool) -> None:
    """List every action in RUN that was allowed or denied, the person or rule that decided, and the outcome."""
    with open_reader(Settings.load().store) as reader:
        id = find.resolve(reader, run).run
        acts = list(audit_actions(reader.read_entries(id)))
    if is_json:
        click.echo(as_json({"schema": SCHEMA, "run": id, "actions": acts}))
    elif not acts:
        print_to_stderr(f"run {id} has no allowed or denied actions")
    else:
        for act in acts:
            click.echo(escape_for_terminal(format_action_line(act)))


def format_action_line(act: AuditedAction) -> str:
    """Return an action as one line."""
    at = time.strftime("%H:%M:%S", time.localtime(act.at))
    what = truncate_line(" ".join(str(value) for value in act.arguments.values()), 80)
    via = f" via {act.channel}" if act.channel else ""
    came_to = f" -> {act.outcome}" if act.outcome else ""
    return f"{at}  {act.decision:8} {act.agent}: {act.tool} {what} ({act.by}){via}{came_to}"
