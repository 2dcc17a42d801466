"""Format the overview of all runs as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...runs.queries.overview import Overview, OverviewRow
from ...runs.queries.request_details import describe_kind, describe_request
from ...store.request_list import OpenRequest
from ...values.plain_text import format_count, format_countdown
from .request_prompt import format_asker
from .text import (
    align_columns,
    count_fitting,
    display_width,
    escape_for_terminal,
    format_age,
    format_duration,
    format_usage,
)

NOTHING = {
    "Needs you": "nothing is waiting for you; requests, questions, plans and decisions appear here",
    "Working": 'no agents are working; start a run with: podium run AGENT "request"',
    "Finished": "no runs have finished yet",
}


def format_overview(overview: Overview, *, now: float, width: int) -> Iterator[str]:
    """Yield the lines of the overview in three sections. An empty section says what would appear in it."""
    parts: tuple[tuple[str, Sequence[str]], ...] = (
        (f"Needs you ({len(overview.waiting)})", format_waiting(overview.waiting, now=now)),
        (f"Working ({len(overview.active)})", format_statuses(overview.active, now=now)),
        (f"Finished ({len(overview.ended)})", format_statuses(overview.ended, now=now)),
    )
    for heading, lines in parts:
        yield heading
        for line in lines or [NOTHING[heading.rpartition(" (")[0]]]:
            yield _cut_line(f"  {line}", width)
        yield ""
    runs = format_count(len(overview.active), "active run")
    yield _cut_line(f"{runs}: {format_usage(overview.usage)}", width)


def _cut_line(line: str, width: int) -> str:
    """Cut a line to `width` columns. Unlike `truncate_line`, do not collapse spaces."""
    return line if display_width(line) <= width else f"{line[: count_fitting(line, width - 1)].rstrip()}…"


def format_waiting(waiting: Sequence[OpenRequest], *, now: float) -> list[str]:
    """Return a line for each request that needs an answer from the user."""
    rows = [
        (
            one.asked.id,
            format_age(now - one.entry.at),
            describe_kind(one),
            format_asker(one.entry, one.worker_name),
            describe_request(one),
        )
        for one in waiting
    ]
    return ["  ".join(row) for row in align_columns(rows)]


def format_statuses(statuses: Sequence[OverviewRow], *, now: float) -> list[str]:
    """Return a line for each run, and below it a line for each active agent."""
    rows = [
        (
            one.id,
            _format_state(one, now),
            one.worker or one.agent,
            format_duration(one.seconds),
            _format_steps(one),
            one.request,
        )
        for one in statuses
    ]
    lines = []
    for one, row in zip(statuses, align_columns(rows), strict=True):
        lines.append(escape_for_terminal("  ".join(row).rstrip()))
        lines += [escape_for_terminal(f"  {who}") for who in one.agents]
    return lines


def _format_state(one: OverviewRow, now: float) -> str:
    return one.state if one.wakes_at is None else f"waiting {format_countdown(one.wakes_at - now)}"


def _format_steps(one: OverviewRow) -> str:
    return "" if one.steps is None else f"{one.steps.done}/{one.steps.total} steps"
