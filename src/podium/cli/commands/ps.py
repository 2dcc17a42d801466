"""`podium ps`: list runs and their states, by group."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from ...runs.run_listing import MOST_ENDED, filter_recent_runs, group_fields, run_group_fields, run_summary_fields
from ...runs.run_lookup import NO_RUNS, derive_run_state, open_reader
from ...setup.settings import Settings
from ...store.group_rows import Groups
from ...store.reader import RunList, RunSummary
from ...system.locations import format_path
from ...values.event import SCHEMA
from ...values.plain_text import format_count, format_countdown
from ...values.store_address import StoreAddress
from ...views.run_groups import Arrangement, Group, GroupedRun, GroupSection, build_sections
from ..terminal import exit_codes
from ..terminal.text import (
    align_columns,
    as_json,
    display_width,
    escape_for_terminal,
    format_age,
    format_duration,
    print_to_stderr,
    truncate_line,
)

NARROWEST_REQUEST = 12
LONGEST_HEADING = 40


@click.command("ps")
@click.option(
    "--all",
    "is_all",
    is_flag=True,
    help=f"Include archived runs, and list all ended runs, not only the last {MOST_ENDED}.",
)
@click.option("--flat", "is_flat", is_flag=True, help="Print a single list instead of a section for each group.")
@click.option("--json", "is_json", is_flag=True, help="Print the list as JSON.")
def ps_command(is_all: bool, is_flat: bool, is_json: bool) -> int:
    """List runs, newest first, with their state: running, queued, paused, resumable (interrupted), or the outcome.

    A run that is waiting for a provider's limit to reset is shown with the remaining time; it then continues by
    itself. If the runs belong to several groups, each group has its own section; see podium group.
    """
    settings = Settings.load()
    (runs, damaged), arrangement = _read_runs(settings.store)
    runs = [run for run in runs if arrangement.group_of(run.id)]
    listed = runs if is_all else [run for run in runs if not arrangement.is_archived(run.id)]
    pinned = {run.id for run in listed if arrangement.grouped_runs[run.id].is_pinned}
    short = listed if is_all else filter_recent_runs(listed, pinned=pinned)
    parts = build_sections((run.id for run in short), arrangement)
    now = time.time()
    if is_json:
        run_items = [{**run_summary_fields(run, now), **run_group_fields(run.id, arrangement)} for run in short]
        group_items = [group_fields(part.group) for part in parts if is_all or not part.group.is_archived]
        damaged_items = [{"id": run.id, "problem": str(run.error)} for run in damaged]
        fields = {"schema": SCHEMA, "runs": run_items, "groups": group_items, "damaged": damaged_items}
        click.echo(as_json(fields))
    elif runs:
        if is_flat and parts:
            parts = [GroupSection(parts[0].group, [run.id for run in short])]
        click.echo(format_runs_table(short, parts, arrangement, now=now, most=shutil.get_terminal_size().columns))
        if missing := format_omissions(older=len(listed) - len(short), archived=len(runs) - len(listed)):
            print_to_stderr(f"not shown: {missing}; run podium ps --all to list all runs")
    elif not damaged:
        print_to_stderr(NO_RUNS)
    if not is_json and (warning := describe_unattended_wakeups(settings.store, short)):
        print_to_stderr(warning)
    for run in damaged:
        print_to_stderr(f"run {run.id} is not listed: {run.error}")
    return exit_codes.INTEGRITY if damaged else 0


def _read_runs(store: StoreAddress) -> tuple[RunList, Arrangement]:
    if not store.exists():
        return RunList([], []), Arrangement()
    with open_reader(store) as reader, Groups(store) as groups:
        # Read the runs before the groups, so that every run that was read has a group.
        return reader.read_run_list(), groups.load_arrangement()


def describe_unattended_wakeups(store: StoreAddress, runs: Iterable[RunSummary]) -> str:
    """Return a warning if no process will continue the runs waiting for a limit to reset, or an empty string."""
    waiting = [run.id for run in runs if derive_run_state(run) == "waiting"]
    if not waiting:
        return ""
    # Imported here to keep start-up fast: few runs wait for a limit to reset.
    from ...store.worker_index import WorkerIndex
    from ...workers.commander_socket import commander_socket_path, is_commander_listening

    fleet_runs = WorkerIndex(store).list_fleet_runs()
    if not (waiting := [run for run in waiting if run not in fleet_runs]):
        return ""
    if is_commander_listening(commander_socket_path(store)):
        return ""
    what = format_count(len(waiting), "run waiting for a limit to reset", "runs waiting for a limit to reset")
    return f"no running process will continue {what}; start one with podium resume or podium serve"


def format_omissions(*, older: int, archived: int) -> str:
    """Describe how many older and archived runs the list omits."""
    counts = ((older, "older ended run"), (archived, "archived run"))
    return ", ".join(format_count(count, what) for count, what in counts if count)


def format_runs_table(
    runs: list[RunSummary], parts: list[GroupSection], arrangement: Arrangement, *, now: float, most: int
) -> str:
    """Return a table of the runs. The request column takes the remaining width."""
    listed = {summary.id: run_summary_fields(summary, now) for summary in runs}
    rows = [["RUN", "STATE", "AGENT", "STARTED", "TOOK", ""]] + [
        [
            run["id"],
            format_state(run["state"], run["wakes_at"], now),
            escape_for_terminal(run["agent"]),
            format_age(now - run["started_at"]),
            format_duration(run["seconds"]),
            "",
        ]
        for run in listed.values()
    ]
    head, *lines = ["  ".join(row) for row in align_columns(rows)]
    room = max(most - display_width(head), NARROWEST_REQUEST)
    by_run = dict(zip(listed, lines, strict=True))
    filled = [part for part in parts if part.runs]

    def iter_lines() -> Iterator[str]:
        yield f"{head}REQUEST"
        for group, inside in filled:
            if len(filled) > 1:
                yield ""
                yield format_group_heading(group)
            for run in inside:
                grouped_run = arrangement.grouped_runs[run]
                text = grouped_run.name or _first_line(listed[run]["request"])
                origin = listed[run]["forked_from"].partition("@")[0]
                flags = format_flags(grouped_run) + (f"[fork of {origin}] " if origin else "")
                yield by_run[run] + truncate_line(f"{flags}{escape_for_terminal(text)}", room)

    return "\n".join(iter_lines())


def format_state(state: str, wakes_at: float | None, now: float) -> str:
    """Return a run's state. If the run is waiting for a limit to reset, the state includes the remaining time."""
    return state if wakes_at is None else f"waiting {format_countdown(wakes_at - now)}"


def format_group_heading(group: Group) -> str:
    """Return the heading of a group: its name and origin."""
    name = truncate_line(escape_for_terminal(group.name), LONGEST_HEADING)
    return f"{format_flags(group)}{name}  {escape_for_terminal(format_group_origin(group))}".rstrip()


def format_group_origin(group: Group) -> str:
    """Return the team or repository that a group belongs to."""
    where = format_path(Path(group.home.repo)) if group.home.repo else ""
    match group.home.kind:
        case "team":
            return f"team {group.home.team}{where and f' in {where}'}"
        case "repo":
            return where
    return ""


def format_flags(group_or_run: Group | GroupedRun) -> str:
    """Return a prefix such as `[pinned] ` for a group or run, or an empty string."""
    words = [
        word for word, holds in (("pinned", group_or_run.is_pinned), ("archived", group_or_run.is_archived)) if holds
    ]
    return f"[{', '.join(words)}] " if words else ""


def _first_line(text: str) -> str:
    return next((line for line in text.splitlines() if line.strip()), "")
