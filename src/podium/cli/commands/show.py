"""`podium show`: show a run with its tree of agents and its answer."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from ...core.open_requests import Answered, Asked
from ...system.whole_file import replace_file
from ...values.column import Document, DocumentPart
from ...values.errors import Failure
from ...values.event import Entry, RunStarted, Trigger
from ...values.operation_path import parse_agent_name
from ...values.phase import Phase
from ...values.plain_text import format_countdown, format_utc_time
from ...values.request import Outcome
from ...values.usage import FullUsage
from ...views.run_state.tree import OperationNode, RunView
from ..output.agent_text import ResultDocument, format_agent_text, format_output, format_parts
from ..output.entry_lines import format_entry
from ..output.run_file import file_option, open_run
from ..output.run_tree import Row, Style, build_tree_rows, choose_symbols, format_plain_row
from ..output.text import (
    align_columns,
    as_json,
    escape_for_terminal,
    format_age,
    format_duration,
    format_usage,
    print_to_stderr,
    truncate_line,
)

NARROWEST = 40

COLOURS: dict[Style, dict[str, Any]] = {
    "name": {"bold": True},
    "good": {"fg": "green"},
    "bad": {"fg": "red"},
    "busy": {"fg": "cyan"},
    "dim": {"dim": True},
}


@click.command("show")
@click.argument("run", required=False, default="")
@file_option
@click.option("--json", "is_json", is_flag=True, help="Print the run as JSON.")
@click.option(
    "--html",
    "page",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write a page to FILE that replays the run in a browser, without a server.",
)
def show_command(run: str, file: Path | None, is_json: bool, page: Path | None) -> None:
    """Show RUN: how it started, what each agent did and used, and the answer or the partial results."""
    with open_run(run, file) as (reader, id):
        if page is not None:
            from ...web.dashboard.replay_file import write_replay_page  # imported here for start-up time

            replace_file(page, write_replay_page(reader, id).encode())
            print_to_stderr(f"run {id} is in {page}; open this file in a browser")
            return
        summary = reader.read_summary(id)
        entries = reader.read_entries(id)
    run_view, run_state = RunView.from_entries(entries), summary.phase
    requests = [entry for entry in entries if isinstance(entry.event, Asked | Answered)]
    if is_json:
        click.echo(as_json(_describe_run(run_state, run_view, requests)))
    else:
        click.echo("\n".join(_format_run(run_state, run_view, requests)))


def _format_run(run_state: Phase, run_view: RunView, requests: Iterable[Entry]) -> list[str]:
    """Return the lines for a run: header, tree, requests with their answers, and answer."""
    most = max(shutil.get_terminal_size().columns, NARROWEST)
    is_live = run_state == "running"
    now = time.time() if is_live else run_view.at
    rows = build_tree_rows(run_view, now=now, most=most, symbols=choose_symbols(sys.stdout.encoding), is_live=is_live)
    is_colourful = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"
    return [
        *_format_run_header(run_state, run_view, now=now, most=most),
        "",
        *(_colour_row(row) if is_colourful else format_plain_row(row) for row in rows),
        *_format_run_requests(requests),
        *(f"\nnotice: {escape_for_terminal(notice)}" for notice in run_view.notices),
        "",
        *_format_run_answer(run_state, run_view),
    ]


def _format_run_header(run_state: Phase, run_view: RunView, *, now: float, most: int) -> list[str]:
    """Return the header of a run as a list of lines, one for each field."""
    started = run_view.started
    assert started is not None
    began = datetime.fromtimestamp(run_view.started_at).astimezone().strftime("%Y-%m-%d %H:%M:%S %z")
    facts = [
        ["run", f"{run_view.run}  {run_state}"],
        ["agent", started.agent],
        ["request", truncate_line(started.request.text, most - 9)],
        *([["fork of", _describe_origin(started)]] if started.forked_from else []),
        ["folder", started.repo],
        *(["also in", one.path] for one in started.checkouts[1:]),
        [
            "started",
            f"{began} ({format_age(time.time() - run_view.started_at)}), took "
            f"{format_duration(now - run_view.started_at)}",
        ],
        ["used", format_usage(run_view.usage) + (", including the shared entries" if started.forked_from else "")],
    ]
    return [escape_for_terminal("  ".join(fact)) for fact in align_columns(facts)]


def _format_run_requests(requests: Iterable[Entry]) -> list[str]:
    """Return a line for each request or question to the user, and for each answer."""
    lines = [line for entry in requests if (line := format_entry(entry)) is not None]
    return ["", *lines] if lines else []


def _describe_origin(started: RunStarted) -> str:
    """Describe the run and the entry that a run was forked from."""
    run, _, seq = started.forked_from.partition("@")
    return f"run {run} at entry {seq}"


def _format_run_answer(run_state: Phase, run_view: RunView) -> list[str]:
    """Return the answer or, if there is none, the partial results and either the error or the command to use next."""
    if run_view.ended is not None and run_view.ended.outcome == "succeeded":
        return [format_agent_text(run_view.build_result().text, sys.stdout)]
    parts = format_parts(run_view.ended.parts if run_view.ended else run_view.collect_parts())
    so_far = [format_output(parts, sys.stdout)] if parts else []
    match run_state:
        case "running":
            return [f"The run is in progress. Follow it with: podium logs {run_view.run} -f"]
        case "waiting" if run_view.wakes_at is not None:
            when, left = format_utc_time(run_view.wakes_at), format_countdown(run_view.wakes_at - time.time())
            return [
                *so_far,
                f"The run is waiting for {escape_for_terminal(run_view.waits_for)}, and will continue by itself at "
                f"{when} ({left} left). Continue it now with: podium resume {run_view.run}",
            ]
        case "queued" | "paused" | "resumable" | "waiting":
            return [
                *so_far,
                f"The run has not ended. Resume it with: podium resume {run_view.run}",
            ]
    error = run_view.build_result().error
    return [*so_far, *([f"error: {escape_for_terminal(error)}"] if error else [])]


class ShownRequest(DocumentPart, frozen=True, kw_only=True):
    """A request or question to the user, with the answer if there is one."""

    agent: str
    asked_at: float
    asked: Asked
    answered: Answered | None


class ShownOperation(DocumentPart, frozen=True, kw_only=True):
    """An operation. The usage includes that of the operations below it."""

    path: str
    agent: str
    trigger: Trigger
    engine: str
    outcome: Outcome | None
    started_at: float
    ended_at: float | None
    usage: FullUsage
    failure: Failure | None
    text: str
    children: list[ShownOperation]


class ShownRun(Document, frozen=True, kw_only=True):
    """A run: how it started, what each agent did and used, and its result."""

    run: str
    state: Phase
    agent: str
    request: str
    repo: str
    version: str
    forked_from: str
    started_at: float
    wakes_at: float | None
    entries: int
    usage: FullUsage
    notices: Sequence[str]
    requests: list[ShownRequest]
    tree: ShownOperation | None
    result: ResultDocument | None


def _describe_run(run_state: Phase, run_view: RunView, requests: Iterable[Entry]) -> ShownRun:
    """Return the run as it is printed with `--json`."""
    started = run_view.started
    assert started is not None
    return ShownRun.of(
        run_view,
        state=run_state,
        agent=started.agent,
        request=started.request.text,
        repo=started.repo,
        version=started.version,
        forked_from=started.forked_from,
        wakes_at=run_view.wakes_at if run_state in ("running", "waiting") else None,
        entries=run_view.seq,
        requests=[
            ShownRequest(
                agent=parse_agent_name(entry.operation),
                asked_at=entry.at,
                asked=entry.event,
                answered=run_view.requests.answers.get(entry.event.id),
            )
            for entry in requests
            if isinstance(entry.event, Asked)
        ],
        tree=None if run_view.root is None else _describe_operation(run_view.root),
        result=None if run_view.ended is None else ResultDocument.of(run_view.build_result()),
    )


def _describe_operation(node: OperationNode) -> ShownOperation:
    children = [_describe_operation(child) for child in node.children]
    return ShownOperation.of(node, started_at=node.started, ended_at=node.ended, children=children)


def _colour_row(row: Row) -> str:
    """Return a row of the tree as text, with terminal escape codes for its styles."""
    return "".join(click.style(words, **COLOURS.get(style, {})) for words, style in row)
