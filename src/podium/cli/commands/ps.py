"""`podium ps`: the runs and how they stand, group by group."""

from __future__ import annotations

import shutil
import time
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

import click

from ...runs.run_lookup import NO_RUNS, looking
from ...runs.run_state import is_over, state
from ...setup.settings import Settings
from ...store.sqlite.group_rows import Groups
from ...store.sqlite.reader import Summary
from ...system.locations import shown
from ...values.event import SCHEMA, RunStarted
from ...views.groups import Arrangement, Group, Placement, Section, sections
from ..terminal.measure import ago, aligned, cut, span, width
from ..terminal.say import say
from ..terminal.text import as_json, visible

MOST_ENDED = 20
NARROWEST_REQUEST = 12
LONGEST_HEADING = 40


@click.command("ps")
@click.option(
    "--all", "is_all", is_flag=True, help=f"All runs: also archived ones, and more than {MOST_ENDED} that ended."
)
@click.option("--json", "is_json", is_flag=True, help="Print the list as JSON.")
def command(is_all: bool, is_json: bool) -> None:
    """List the runs, the newest first: running, queued, paused, resumable (interrupted), or how they ended.

    Where there is more than one group with runs to list, each has its own part; see podium group.
    """
    store = Settings.load().store
    runs: list[Summary] = []
    arrangement = Arrangement()
    if store.exists():
        with looking(store) as reader, Groups(store) as groups:
            # The runs first: each of them has its place by the time the groups are read.
            runs, arrangement = reader.runs(), groups.arranged()
    runs = [run for run in runs if arrangement.group_of(run.id)]
    listed = runs if is_all else [run for run in runs if not arrangement.is_archived(run.id)]
    pinned = {run.id for run in listed if arrangement.placements[run.id].is_pinned}
    short = listed if is_all else recent(listed, pinned=pinned)
    parts = sections((run.id for run in short), arrangement)
    now = time.time()
    if is_json:
        told = [{**fields(run, now), **place_fields(run.id, arrangement)} for run in short]
        told_groups = [group_fields(part.group) for part in parts if is_all or not part.group.is_archived]
        click.echo(as_json({"schema": SCHEMA, "runs": told, "groups": told_groups}))
    elif not runs:
        say(NO_RUNS)
    else:
        click.echo(table(short, parts, arrangement, now=now, most=shutil.get_terminal_size().columns))
        if missing := left_out(older=len(listed) - len(short), archived=len(runs) - len(listed)):
            say(f"left out: {missing}; podium ps --all lists them")


def recent(runs: list[Summary], *, pinned: Container[str] = ()) -> list[Summary]:
    """Those that have not ended or are pinned, and the last of those that have ended."""
    ended = [summary for summary in runs if is_over(summary) and summary.id not in pinned]
    old = {summary.id for summary in ended[MOST_ENDED:]}
    return [summary for summary in runs if summary.id not in old]


def left_out(*, older: int, archived: int) -> str:
    """What a list does not show, in words."""
    counts = ((older, "older that ended"), (archived, "archived"))
    return ", ".join(f"{count} {what}" for count, what in counts if count)


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


def place_fields(run: str, arrangement: Arrangement) -> dict[str, Any]:
    """Where a run is listed. It is archived alone or with its group."""
    placement, group = arrangement.placements[run], arrangement.group_of(run)
    assert group is not None
    return {
        "group": group.tag,
        "name": placement.name,
        "pinned": placement.is_pinned,
        "archived": arrangement.is_archived(run),
    }


def group_fields(group: Group) -> dict[str, Any]:
    """A group as a list tells of it."""
    return {
        "id": group.tag,
        "name": group.name,
        "kind": group.home.kind,
        "repo": group.home.repo,
        "team": group.home.team,
        "pinned": group.is_pinned,
        "archived": group.is_archived,
        "position": group.position,
    }


def table(runs: list[Summary], parts: list[Section], arrangement: Arrangement, *, now: float, most: int) -> str:
    """The runs in columns; the request takes what the others leave of the width."""
    listed = {summary.id: fields(summary, now) for summary in runs}
    rows = [["RUN", "STATE", "AGENT", "STARTED", "TOOK", ""]] + [
        [run["id"], run["state"], visible(run["agent"]), ago(now - run["started_at"]), span(run["seconds"]), ""]
        for run in listed.values()
    ]
    head, *lines = ["  ".join(row) for row in aligned(rows)]
    room = max(most - width(head), NARROWEST_REQUEST)
    by_run = dict(zip(listed, lines, strict=True))
    filled = [part for part in parts if part.runs]

    def drawn() -> Iterator[str]:
        yield f"{head}REQUEST"
        for group, inside in filled:
            if len(filled) > 1:
                yield ""
                yield heading(group)
            for run in inside:
                placement = arrangement.placements[run]
                text = placement.name or _first_line(listed[run]["request"])
                yield by_run[run] + cut(f"{marks(placement)}{visible(text)}", room)

    return "\n".join(drawn())


def heading(group: Group) -> str:
    """What stands over the runs of a group: its name, and where it comes from."""
    return f"{marks(group)}{cut(visible(group.name), LONGEST_HEADING)}  {visible(origin(group))}".rstrip()


def origin(group: Group) -> str:
    """What a group is for, in a few words."""
    where = shown(Path(group.home.repo)) if group.home.repo else ""
    match group.home.kind:
        case "team":
            return f"team {group.home.team}{where and f' in {where}'}"
        case "repo":
            return where
    return ""


def marks(thing: Group | Placement) -> str:
    """What the person did to it, before its name."""
    words = [word for word, holds in (("pinned", thing.is_pinned), ("archived", thing.is_archived)) if holds]
    return f"[{', '.join(words)}] " if words else ""


def _first_line(text: str) -> str:
    return next((line for line in text.splitlines() if line.strip()), "")
