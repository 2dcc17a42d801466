"""`podium approvals`: list the open permission requests and questions from all runs."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import click

from ...setup.settings import Settings
from ...store.open_requests import OpenRequest, find_open_request, list_open_requests
from ...values.event import SCHEMA, PermissionAsked
from ...values.operation_path import parse_agent_name
from ...views.request_text import escape_hidden_text
from ..terminal.request_prompt import format_asker, format_permission_request, format_question
from ..terminal.request_wrapping import wrap_request
from ..terminal.text import as_json, format_age, print_to_stderr, truncate_line


@click.command("approvals")
@click.argument("id", required=False)
@click.option("--json", "is_json", is_flag=True, help="Print the list as JSON.")
def approvals_command(id: str | None, is_json: bool) -> None:
    """List the open permission requests and questions from all runs, oldest first. With ID, show one in full."""
    store = Settings.load().store
    requests = list_open_requests(store) if store.exists() else []
    if id is not None:
        requests = [find_open_request(store, id)]
    if is_json:
        click.echo(as_json({"schema": SCHEMA, "waiting": [request_fields(one) for one in requests]}))
    elif not requests:
        print_to_stderr("no open requests")
    elif id is not None:
        _print_shown(format_request(requests[0]))
        print_to_stderr(f"answer it with: {format_answer_commands(requests)}")
    else:
        same = Counter(request_key(one) for one in requests)
        for one in requests:
            _print_shown(format_request_line(one, same[request_key(one)]))
        if sys.stdout.isatty():  # in a pipe, only the list is of interest
            print_to_stderr(
                f"to show a request in full: podium approvals ID; to answer: {format_answer_commands(requests)}"
            )


def _print_shown(text: str) -> None:
    """Print text about a request, wrapped if it is printed to a terminal."""
    shown = escape_hidden_text(text)
    click.echo(wrap_request(shown) if sys.stdout.isatty() else shown)


def request_fields(one: OpenRequest) -> dict[str, Any]:
    """Return the fields of a request for the JSON list."""
    return {
        "id": one.asked.id,
        "run": one.summary.id,
        "state": one.summary.phase,
        "agent": parse_agent_name(one.entry.operation),
        "worker": one.worker_name or None,
        "asked_at": one.entry.at,
        "asked": one.asked,
        "text": escape_hidden_text(format_request(one)),
        "action_id": one.asked.action.id if isinstance(one.asked, PermissionAsked) else None,
    }


def format_request_line(one: OpenRequest, same: int) -> str:
    """Return a request as one line. `same` is the number of identical requests, including this one."""
    what = (
        f"{one.asked.action.tool} {_action_subject(one.asked)}"
        if isinstance(one.asked, PermissionAsked)
        else one.asked.text
    )
    kinds = [fact.kind.replace("_", " ") for fact in one.asked.risks] if isinstance(one.asked, PermissionAsked) else []
    risks = f"  [{', '.join(kinds)}]" if kinds else ""
    again = f"  (one of {same} identical requests)" if same > 1 else ""
    asks = f"{format_asker(one.entry, one.worker_name)} in {one.summary.id}"
    return (
        f"{one.asked.id}  {format_age(time.time() - one.entry.at)}  {asks}: "
        f"{truncate_line(' '.join(what.split()), 90)}{risks}{again}"
    )


def format_request(one: OpenRequest) -> str:
    """Return the full text of a request."""
    if isinstance(one.asked, PermissionAsked):
        return format_permission_request(one.entry, one.asked, one.worker_name, now=time.time()).strip()
    return format_question(one.entry, one.asked, one.worker_name).strip()


def format_answer_commands(requests: Sequence[OpenRequest]) -> str:
    """Return the commands that answer these requests."""
    id = requests[0].asked.id if len(requests) == 1 else "ID"
    kinds = {isinstance(one.asked, PermissionAsked) for one in requests}
    answers = [f"podium approve {id}, podium deny {id} --why TEXT"] if True in kinds else []
    return ", ".join([*answers, f"podium answer {id} TEXT"] if False in kinds else answers)


def request_key(one: OpenRequest) -> str:
    """Return a key that is the same for identical permission requests."""
    return one.asked.action.effect_hash if isinstance(one.asked, PermissionAsked) else one.asked.id


def _action_subject(asked: PermissionAsked) -> str:
    arguments = asked.action.arguments
    return str(next((arguments[key] for key in ("command", "path", "url") if key in arguments), arguments))
