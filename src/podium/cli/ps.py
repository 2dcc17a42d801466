"""`podium ps`: the runs and how they stand."""

from __future__ import annotations

import shutil
import time
from typing import Any

import click

from ..event import SCHEMA, RunStarted
from ..settings import Settings
from ..store.reader import Summary
from .looking import NO_RUNS, looking
from .measure import ago, aligned, cut, span, width
from .say import say
from .state import is_over, state
from .text import as_json, visible

MOST_ENDED = 20
NARROWEST_REQUEST = 12


@click.command("ps")
@click.option("--all", "is_all", is_flag=True, help=f"All runs, not only the last {MOST_ENDED} of those that ended.")
@click.option("--json", "is_json", is_flag=True, help="Print the list as JSON.")
def command(is_all: bool, is_json: bool) -> None:
    """List the runs, the newest first: running, paused, resumable (interrupted), or how they ended."""
    store = Settings.load().store
    runs: list[Summary] = []
    if store.exists():
        with looking(store) as reader:
            runs = reader.runs()
    shown = runs if is_all else recent(runs)
    now = time.time()
    if is_json:
        click.echo(as_json({"schema": SCHEMA, "runs": [fields(summary, now) for summary in shown]}))
    elif not runs:
        say(NO_RUNS)
    else:
        click.echo(table(shown, now=now, most=shutil.get_terminal_size().columns))
        if len(shown) < len(runs):
            say(f"{len(runs) - len(shown)} older ones that ended are left out; podium ps --all lists them")


def recent(runs: list[Summary]) -> list[Summary]:
    """Those that have not ended, and the last of those that have."""
    ended = [summary for summary in runs if is_over(summary)]
    old = {summary.id for summary in ended[MOST_ENDED:]}
    return [summary for summary in runs if summary.id not in old]


def fields(summary: Summary, now: float) -> dict[str, Any]:
    """A run as a list tells of it."""
    started = summary.first.event
    assert isinstance(started, RunStarted)
    word = state(summary)
    return {
        "id": summary.id,
        "state": word,
        "agent": started.agent,
        "request": started.request.text,
        "repo": started.repo,
        "started_at": summary.first.at,
        "seconds": (now if word == "running" else summary.last.at) - summary.first.at,
        "entries": summary.last.seq,
    }


def table(runs: list[Summary], *, now: float, most: int) -> str:
    """The runs in columns; the request takes what the others leave of the width."""
    listed = [fields(summary, now) for summary in runs]
    rows = [["RUN", "STATE", "AGENT", "STARTED", "TOOK", ""]] + [
        [run["id"], run["state"], visible(run["agent"]), ago(now - run["started_at"]), span(run["seconds"]), ""]
        for run in listed
    ]
    lines = ["  ".join(row) for row in aligned(rows)]
    room = max(most - width(lines[0]), NARROWEST_REQUEST)
    requests = ["REQUEST", *(cut(visible(_first_line(run["request"])), room) for run in listed)]
    return "\n".join(f"{line}{request}" for line, request in zip(lines, requests, strict=True))


def _first_line(text: str) -> str:
    return next((line for line in text.splitlines() if line.strip()), "")
