"""`podium approvals`: list the open permission requests and questions from all runs."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import click

from ...core.open_requests import Asked
from ...files.settings import Settings
from ...store.request_list import OpenRequest, find_open_request, list_open_requests
from ...values.column import Column, encode_rows
from ...values.event import SCHEMA, PermissionAsked
from ...values.operation_path import parse_agent_name
from ...views.request_text import escape_hidden_text
from ..output.request_prompt import format_asker, format_permission_request, format_question
from ..output.request_wrapping import wrap_request
from ..output.table import format_line
from ..output.text import as_json, print_to_stderr, truncate_line


@click.command("approvals")
@click.argument("id", required=False)
@click.option("--json", "is_json", is_flag=True, help="Print the list as JSON.")
def approvals_command(id: str | None, is_json: bool) -> None:
    """List the open permission requests and questions from all runs, oldest first. With ID, show one in full."""
    store = Settings.load().store
    requests = list_open_requests(store) if store.exists() else []
    if id is not None:
        requests = [find_open_request(store, id)]
    rows = list_rows(requests)
    if is_json:
        click.echo(as_json({"schema": SCHEMA, "waiting": encode_rows(rows, REQUEST_COLUMNS)}))
    elif not requests:
        print_to_stderr("no open requests")
    elif id is not None:
        _print_shown(format_request(requests[0]))
        print_to_stderr(f"answer it with: {_format_answer_commands(requests)}")
    else:
        for row in rows:
            _print_shown(format_line(row, REQUEST_COLUMNS, now=time.time()))
        if sys.stdout.isatty():  # in a pipe, only the list is of interest
            print_to_stderr(
                f"to show a request in full: podium approvals ID; to answer: {_format_answer_commands(requests)}"
            )


def _print_shown(text: str) -> None:
    """Print text about a request, wrapped if it is printed to a terminal."""
    shown = escape_hidden_text(text)
    click.echo(wrap_request(shown) if sys.stdout.isatty() else shown)


class RequestRow(NamedTuple):
    """An open request in the list, and the number of identical requests, including this one."""

    request: OpenRequest
    same: int

    @property
    def asked(self) -> Asked:
        return self.request.asked


def list_rows(requests: Sequence[OpenRequest]) -> list[RequestRow]:
    """Return requests as rows of the list."""
    same = Counter(map(_request_key, requests))
    return [RequestRow(one, same[_request_key(one)]) for one in requests]


def _format_request_line(row: RequestRow) -> str:
    """Return who asks, what for, its risks, and whether there are identical requests."""
    one, asked = row.request, row.asked
    if isinstance(asked, PermissionAsked):
        what = f"{asked.action.tool} {_action_subject(asked)}"
        kinds = [fact.kind.replace("_", " ") for fact in asked.risks]
    else:
        what, kinds = asked.text, []
    risks = f"  [{', '.join(kinds)}]" if kinds else ""
    again = f"  (one of {row.same} identical requests)" if row.same > 1 else ""
    asks = f"{format_asker(one.entry, one.worker_name)} in {one.summary.id}"
    return f"{asks}: {truncate_line(what, 90)}{risks}{again}"


REQUEST_COLUMNS: tuple[Column[RequestRow], ...] = (
    Column("id", "Request", lambda row: row.asked.id),
    Column("run", "Run", lambda row: row.request.summary.id, shown="nowhere"),
    Column("state", "State", lambda row: row.request.summary.phase, shown="nowhere"),
    Column("agent", "Agent", lambda row: parse_agent_name(row.request.entry.operation), shown="nowhere"),
    Column("worker", "Worker", lambda row: row.request.worker_name or None, shown="nowhere"),
    Column("asked_at", "Asked", lambda row: row.request.entry.at, "age"),
    Column("asked", "Event", lambda row: row.asked, "data", shown="nowhere"),
    Column("text", "Text", lambda row: escape_hidden_text(format_request(row.request)), text=_format_request_line),
    Column(
        "action_id",
        "Action",
        lambda row: row.asked.action.id if isinstance(row.asked, PermissionAsked) else None,
        shown="nowhere",
    ),
)
"""The columns of the list of open requests."""


def format_request(one: OpenRequest) -> str:
    """Return the full text of a request."""
    if isinstance(one.asked, PermissionAsked):
        return format_permission_request(one.entry, one.asked, one.worker_name, now=time.time()).strip()
    return format_question(one.entry, one.asked, one.worker_name).strip()


def _format_answer_commands(requests: Sequence[OpenRequest]) -> str:
    """Return the commands that answer these requests."""
    id = requests[0].asked.id if len(requests) == 1 else "ID"
    kinds = {isinstance(one.asked, PermissionAsked) for one in requests}
    answers = [f"podium approve {id}, podium deny {id} --why TEXT"] if True in kinds else []
    return ", ".join([*answers, f"podium answer {id} TEXT"] if False in kinds else answers)


def _request_key(one: OpenRequest) -> str:
    """Return a key that is the same for identical permission requests."""
    return one.asked.action.effect_hash if isinstance(one.asked, PermissionAsked) else one.asked.id


def _action_subject(asked: PermissionAsked) -> str:
    arguments = asked.action.arguments
    return str(next((arguments[key] for key in ("command", "path", "url") if key in arguments), arguments))
