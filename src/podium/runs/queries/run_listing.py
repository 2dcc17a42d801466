"""The columns of the lists of runs and of groups, their rows, and which runs are recent enough to list."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path
from typing import Annotated

from msgspec import UNSET, Struct, UnsetType

from ...store.reader import RunSummary
from ...system.locations import format_path
from ...values.column import Column, RowColumns
from ...values.event import RunStarted
from ...values.phase import Phase
from ...values.plain_text import escape_for_terminal, format_countdown, truncate_line
from ...values.usage import NO_USAGE, Usage
from ...views.run_groups import Arrangement, Group, GroupedRun
from .run_lookup import find_wakeup_time

MOST_ENDED = 20
"""The maximum number of ended runs in a list, not counting pinned ones."""
LONGEST_GROUP_NAME = 40


def filter_recent_runs(runs: list[RunSummary], *, pinned: Container[str] = ()) -> list[RunSummary]:
    """Return the runs that have not ended or are pinned, and the most recent others. `runs` is sorted newest first."""
    ended = [summary for summary in runs if summary.is_over and summary.id not in pinned]
    old = {summary.id for summary in ended[MOST_ENDED:]}
    return [summary for summary in runs if summary.id not in old]


class RunPlace(Struct, frozen=True, kw_only=True):
    """A run's place in a group. A run is archived individually or with its group."""

    group: Group
    run: GroupedRun
    is_archived: bool

    @classmethod
    def find(cls, run: str, arrangement: Arrangement) -> RunPlace:
        """Return the place of a run that is listed."""
        group = arrangement.group_of(run)
        assert group is not None
        return cls(group=group, run=arrangement.grouped_runs[run], is_archived=arrangement.is_archived(run))


class RunTotals(Struct, frozen=True, kw_only=True):
    """A run's usage, its number of open requests, and its number of workers. A list of costs has only the usage."""

    usage: Usage
    waiting: int | UnsetType = UNSET
    workers: int | UnsetType = UNSET


class RunRow(Struct, frozen=True, kw_only=True):
    """A run in a list, at the time `now`. A list that does not show the groups or the totals leaves them out."""

    summary: RunSummary
    started: RunStarted
    state: Phase
    now: float
    place: RunPlace | None = None
    totals: RunTotals | None = None

    @property
    def request(self) -> str:
        return self.started.request.text

    @property
    def usage(self) -> Usage:
        return NO_USAGE if self.totals is None else self.totals.usage

    @property
    def seconds(self) -> float:
        """How long the run has taken so far."""
        return (self.now if self.state == "running" else self.summary.last.at) - self.summary.first.at


def make_run_row(
    summary: RunSummary, *, now: float, place: RunPlace | None = None, totals: RunTotals | None = None
) -> RunRow:
    """Return a run as a row of a list."""
    state = summary.phase
    return RunRow(summary=summary, started=summary.started, state=state, now=now, place=place, totals=totals)


def _format_state(run: RunRow) -> str:
    """Return a run's state. If the run is waiting for a limit to reset, the state includes the remaining time."""
    wakes_at = find_wakeup_time(run.summary)
    return run.state if wakes_at is None else f"waiting {format_countdown(wakes_at - run.now)}"


def _format_request(run: RunRow) -> str:
    """Return a run's name or the first line of its request, after its flags and the run that it was forked from."""
    text = next((line for line in run.request.splitlines() if line.strip()), "")
    origin = run.started.forked_from.partition("@")[0]
    fork = f"[fork of {origin}] " if origin else ""
    if run.place is None:
        return f"{fork}{text}"
    return f"{format_flags(run.place.run)}{fork}{run.place.run.name or text}"


RUN_COLUMNS: tuple[Column[RunRow], ...] = (
    Column("id", "Run", lambda run: run.summary.id),
    Column("state", "State", lambda run: run.state, text=_format_state),
    Column("agent", "Agent", lambda run: run.started.agent, shown="terminal"),
    Column("request", "Request", lambda run: run.request, shown="terminal", text=_format_request, fills=True),
    Column("repo", "Repository", lambda run: run.started.repo, shown="nowhere"),
    Column("forked_from", "Forked from", lambda run: run.started.forked_from, shown="nowhere"),
    Column("started_at", "Started", lambda run: run.summary.first.at, "age"),
    Column("wakes_at", "Continues", lambda run: find_wakeup_time(run.summary), "age", shown="nowhere"),
    Column("seconds", "Took", lambda run: run.seconds, "duration"),
    Column("entries", "Entries", lambda run: run.summary.last.seq, "number", shown="nowhere"),
    Column("group", "Group", lambda run: run.place.group.tag if run.place else UNSET, shown="nowhere"),
    Column("name", "Name", lambda run: run.place.run.name if run.place else UNSET, shown="nowhere"),
    Column("pinned", "Pinned", lambda run: run.place.run.is_pinned if run.place else UNSET, "data", shown="nowhere"),
    Column("archived", "Archived", lambda run: run.place.is_archived if run.place else UNSET, "data", shown="nowhere"),
    Column("waiting", "Waiting", lambda run: run.totals.waiting if run.totals else UNSET, "number", shown="nowhere"),
    Column("workers", "Workers", lambda run: run.totals.workers if run.totals else UNSET, "number", shown="nowhere"),
    Column("usage", "Cost", lambda run: run.totals.usage if run.totals else UNSET, "usage", shown="page"),
)
"""The columns of a list of runs. The dashboard draws the agent and the request in the column of the id."""


class GroupRow(Struct, frozen=True, kw_only=True):
    """A group in a list.

    `runs` is the number of its runs, and `newest_at` is when the newest of them was started, if there is one. `count`
    is the number of its runs that match a filter, and `listed` contains those on the page. A list leaves out what it
    does not show.
    """

    group: Group
    runs: int | UnsetType = UNSET
    newest_at: float | UnsetType | None = UNSET
    count: int | UnsetType = UNSET
    listed: list[str] | UnsetType = UNSET


def format_flags(group_or_run: Group | GroupedRun) -> str:
    """Return a prefix such as `[pinned] ` for a group or run, or an empty string."""
    words = [
        word for word, holds in (("pinned", group_or_run.is_pinned), ("archived", group_or_run.is_archived)) if holds
    ]
    return f"[{', '.join(words)}] " if words else ""


def format_group_origin(group: Group) -> str:
    """Return the team or repository that a group belongs to."""
    where = format_path(Path(group.home.repo)) if group.home.repo else ""
    match group.home.kind:
        case "team":
            return f"team {group.home.team}{where and f' in {where}'}"
        case "repo":
            return where
    return ""


def _format_group_name(row: GroupRow) -> str:
    return f"{format_flags(row.group)}{truncate_line(escape_for_terminal(row.group.name), LONGEST_GROUP_NAME)}"


GROUP_COLUMNS: tuple[Column[GroupRow], ...] = (
    Column("id", "Group", lambda row: row.group.tag),
    Column("name", "Name", lambda row: row.group.name, text=_format_group_name),
    Column("kind", "Kind", lambda row: row.group.home.kind, shown="nowhere"),
    Column("runs", "Runs", lambda row: row.runs, "number"),
    Column("newest_at", "Newest", lambda row: row.newest_at, "age"),
    Column("repo", "Origin", lambda row: row.group.home.repo, text=lambda row: format_group_origin(row.group)),
    Column("team", "Team", lambda row: row.group.home.team, shown="nowhere"),
    Column("pinned", "Pinned", lambda row: row.group.is_pinned, "data", shown="nowhere"),
    Column("archived", "Archived", lambda row: row.group.is_archived, "data", shown="nowhere"),
    Column("position", "Position", lambda row: row.group.position, "number", shown="nowhere"),
    Column("count", "Matching runs", lambda row: row.count, "number", shown="nowhere"),
    Column("listed", "Listed runs", lambda row: row.listed, "data", shown="nowhere"),
)
"""The columns of a list of groups."""

RunObject = Annotated[dict[str, object], RowColumns(RUN_COLUMNS)]
GroupObject = Annotated[dict[str, object], RowColumns(GROUP_COLUMNS)]
"""A run, and a group of runs, as the JSON of lists has them."""
