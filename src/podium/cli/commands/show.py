"""`podium show`: one run, its tree of agents and its answer."""

from __future__ import annotations

import os
import shutil
import sys
import time
from datetime import datetime
from typing import Any

import click
from msgspec import structs

from ...runs.run_lookup import looking
from ...runs.run_state import State, state
from ...setup.settings import Settings
from ...values.event import SCHEMA
from ...views.run_view import Node, Picture
from ..terminal.measure import ago, aligned, cut, span, used
from ..terminal.outcome_text import parts_told, result_fields
from ..terminal.run_tree import Row, Style, plain, signs_for, tree
from ..terminal.text import as_json, visible

NARROWEST = 40

COLOURS: dict[Style, dict[str, Any]] = {
    "name": {"bold": True},
    "good": {"fg": "green"},
    "bad": {"fg": "red"},
    "busy": {"fg": "cyan"},
    "dim": {"dim": True},
}


@click.command("show")
@click.argument("run")
@click.option("--json", "is_json", is_flag=True, help="Print it as JSON.")
def command(run: str, is_json: bool) -> None:
    """Show RUN: how it began, who did what for how much, and the answer, or what there is of one."""
    with looking(Settings.load().store) as reader:
        id = reader.find(run)
        summary = reader.summary(id)
        picture = Picture.of(reader.entries(id))
    word = state(summary)
    if is_json:
        click.echo(as_json(fields(word, picture)))
    else:
        click.echo("\n".join(rendered(word, picture)))


def rendered(word: State, picture: Picture) -> list[str]:
    """The run in lines: its head, its tree, and the answer."""
    most = max(shutil.get_terminal_size().columns, NARROWEST)
    is_live = word == "running"
    now = time.time() if is_live else picture.at
    rows = tree(picture, now=now, most=most, signs=signs_for(sys.stdout.encoding), is_live=is_live)
    is_colourful = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"
    return [
        *head(word, picture, now=now, most=most),
        "",
        *(coloured(row) if is_colourful else plain(row) for row in rows),
        *(f"\nnotice: {visible(notice)}" for notice in picture.notices),
        "",
        *tail(word, picture),
    ]


def head(word: State, picture: Picture, *, now: float, most: int) -> list[str]:
    """What a run is and what it took, a line each."""
    started = picture.started
    assert started is not None
    began = datetime.fromtimestamp(picture.started_at).astimezone().strftime("%Y-%m-%d %H:%M:%S %z")
    facts = [
        ["run", f"{picture.run}  {word}"],
        ["agent", started.agent],
        ["request", cut(started.request.text, most - 9)],
        ["folder", started.repo],
        ["started", f"{began} ({ago(time.time() - picture.started_at)}), took {span(now - picture.started_at)}"],
        ["used", used(picture.usage)],
    ]
    return [visible("  ".join(fact)) for fact in aligned(facts)]


def tail(word: State, picture: Picture) -> list[str]:
    """The answer; without one, what there is and what can be done."""
    if picture.ended is not None and picture.ended.outcome == "succeeded":
        return [visible(picture.result().text)]
    so_far = parts_told(picture.ended.parts if picture.ended else picture.parts_so_far())
    match word:
        case "running":
            return [f"It is being worked on. podium logs {picture.run} -f follows it."]
        case "queued" | "paused" | "resumable":
            return [*map(visible, so_far), f"It has not ended. podium resume {picture.run} goes on with it."]
    error = picture.result().error
    return [*map(visible, so_far), *([f"error: {visible(error)}"] if error else [])]


def fields(word: State, picture: Picture) -> dict[str, Any]:
    """The same for programs."""
    started = picture.started
    assert started is not None
    return {
        "schema": SCHEMA,
        "run": picture.run,
        "state": word,
        "agent": started.agent,
        "request": started.request.text,
        "repo": started.repo,
        "version": started.version,
        "started_at": picture.started_at,
        "entries": picture.seq,
        "usage": structs.asdict(picture.usage),
        "notices": picture.notices,
        "tree": None if picture.root is None else operation_fields(picture.root),
        "result": None if picture.ended is None else result_fields(picture.result()),
    }


def operation_fields(node: Node) -> dict[str, Any]:
    """An operation and all below it; its usage is theirs together."""
    return {
        "path": node.path,
        "agent": node.agent,
        "trigger": node.trigger,
        "engine": node.engine,
        "outcome": node.outcome,
        "started_at": node.started,
        "ended_at": node.ended,
        "usage": structs.asdict(node.usage),
        "failure": node.failure,
        "text": node.text,
        "children": [operation_fields(child) for child in node.children],
    }


def coloured(row: Row) -> str:
    """A row of the tree with its styles as a terminal takes them."""
    return "".join(click.style(words, **COLOURS.get(style, {})) for words, style in row)
