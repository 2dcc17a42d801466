"""`podium ps`: list runs and their states, by group."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Iterator

import click

from ...files.settings import Settings
from ...runs.queries.run_listing import (
    GROUP_COLUMNS,
    LONGEST_GROUP_NAME,
    MOST_ENDED,
    RUN_COLUMNS,
    GroupRow,
    RunPlace,
    RunRow,
    filter_recent_runs,
    format_flags,
    format_group_origin,
    make_run_row,
)
from ...runs.queries.run_lookup import NO_RUNS, open_reader
from ...store.group_rows import Groups
from ...store.reader import RunList, RunSummary
from ...values.column import encode_rows
from ...values.event import SCHEMA
from ...values.plain_text import format_count
from ...values.store_address import StoreAddress
from ...views.run_groups import Arrangement, Group, GroupSection, build_sections
from ..output import exit_codes
from ..output.table import format_table
from ..output.text import as_json, escape_for_terminal, print_to_stderr, truncate_line


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
    rows = [make_run_row(run, now=now, place=RunPlace.find(run.id, arrangement)) for run in short]
    if is_json:
        groups = [GroupRow(group=part.group) for part in parts if is_all or not part.group.is_archived]
        run_items, group_items = encode_rows(rows, RUN_COLUMNS), encode_rows(groups, GROUP_COLUMNS)
        click.echo(as_json({"schema": SCHEMA, "runs": run_items, "groups": group_items, "damaged": damaged}))
    elif runs:
        if is_flat and parts:
            parts = [GroupSection(parts[0].group, [run.id for run in short])]
        click.echo(_format_runs_table(rows, parts, now=now, most=shutil.get_terminal_size().columns))
        if missing := _format_omissions(older=len(listed) - len(short), archived=len(runs) - len(listed)):
            print_to_stderr(f"not shown: {missing}; run podium ps --all to list all runs")
    elif not damaged:
        print_to_stderr(NO_RUNS)
    if not is_json and (warning := _describe_unattended_wakeups(settings.store, short)):
        print_to_stderr(warning)
    for run in damaged:
        print_to_stderr(f"run {run.id} is not listed: {run.problem}")
    return exit_codes.INTEGRITY if damaged else 0


def _read_runs(store: StoreAddress) -> tuple[RunList, Arrangement]:
    if not store.exists():
        return RunList([], []), Arrangement()
    with open_reader(store) as reader, Groups(store) as groups:
        # Read the runs before the groups, so that every run that was read has a group.
        return reader.read_run_list(), groups.load_arrangement()


def _describe_unattended_wakeups(store: StoreAddress, runs: Iterable[RunSummary]) -> str:
    """Return a warning if no process will continue the runs waiting for a limit to reset, or an empty string."""
    waiting = [run.id for run in runs if run.phase == "waiting"]
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


def _format_omissions(*, older: int, archived: int) -> str:
    """Describe how many older and archived runs the list omits."""
    counts = ((older, "older ended run"), (archived, "archived run"))
    return ", ".join(format_count(count, what) for count, what in counts if count)


def _format_runs_table(rows: list[RunRow], parts: list[GroupSection], *, now: float, most: int) -> str:
    """Return a table of the runs, in sections if they belong to several groups."""
    head, *lines = format_table(rows, RUN_COLUMNS, now=now, most=most)
    by_run = {row.summary.id: line for row, line in zip(rows, lines, strict=True)}
    filled = [part for part in parts if part.runs]

    def iter_lines() -> Iterator[str]:
        yield head
        for group, inside in filled:
            if len(filled) > 1:
                yield ""
                yield _format_group_heading(group)
            yield from (by_run[run] for run in inside)

    return "\n".join(iter_lines())


def _format_group_heading(group: Group) -> str:
    """Return the heading of a group: its name and origin."""
    name = truncate_line(escape_for_terminal(group.name), LONGEST_GROUP_NAME)
    return f"{format_flags(group)}{name}  {escape_for_terminal(format_group_origin(group))}".rstrip()
