"""`podium schedule`: send requests to agents at set times."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import click

from ...files.settings import Settings
from ...store.schedule_rows import Schedule, Schedules
from ...system.identity import read_host_id
from ...system.locations import find_repo
from ...system.time_zone import load_zone
from ...values.column import Column, encode_row, encode_rows
from ...values.errors import Mistake
from ...values.event import SCHEMA
from ...values.plain_text import format_count
from ..output.command_options import get_command_actor, json_option, read_text_argument, repo_option
from ..output.table import format_table
from ..output.text import as_json, print_to_stderr, truncate_line

LONGEST_REQUEST = 40
ELSEWHERE = "on another machine"


@click.group("schedule", invoke_without_command=True)
@click.pass_context
def schedule_command(ctx: click.Context) -> Any:
    """Send requests to agents at set times.

    A background process starts a run each time a schedule is due. It keeps running while there are active schedules.
    """
    return ctx.invoke(schedule_list_command) if ctx.invoked_subcommand is None else None


@schedule_command.command("add")
@click.argument("when")
@click.argument("agent")
@click.argument("request")
@click.option("--zone", default="", metavar="ZONE", help="Time zone such as Europe/Berlin; default: the local one.")
@repo_option
@json_option
def schedule_add_command(when: str, agent: str, request: str, zone: str, repo: Path | None, is_json: bool) -> None:
    """Send REQUEST to AGENT at the times given by WHEN, a cron expression such as "0 9 * * 1-5".

    The five fields are minute, hour, day of month, month and day of week. If REQUEST is -, it is read from standard
    input. The runs work in the repository, like those that podium run --detach starts.
    """
    # Imported here to keep start-up fast: the list does not need it.
    from ...schedules.schedule_editing import NewSchedule, add_schedule

    place = find_repo(repo or Path()).resolve()
    settings = Settings.load(repo=place)
    new = NewSchedule(cron=when, agent=agent, request=read_text_argument(request), place=place, zone=zone)
    schedule = add_schedule(settings, new, by=get_command_actor())
    row = ScheduleRow(schedule)
    click.echo(as_json({"schema": SCHEMA, **encode_row(row, SCHEDULE_COLUMNS)}) if is_json else schedule.id)
    print_to_stderr(f"the next request to {agent} will be sent at {_format_time(schedule.next_at, schedule.zone)}")


@schedule_command.command("list")
@json_option
def schedule_list_command(is_json: bool = False) -> None:
    """List the schedules with their next due times, last runs and numbers of missed runs.

    The runs of a schedule are started only on the machine where the schedule was added.
    """
    settings = Settings.load(repo=find_repo(Path()))
    found = Schedules(settings.store).list_all()
    machine = read_host_id(settings.home) if found else ""
    rows = [ScheduleRow(one, one.host != machine) for one in found]
    if is_json:
        click.echo(as_json({"schema": SCHEMA, "schedules": encode_rows(rows, SCHEDULE_COLUMNS)}))
    elif rows:
        click.echo("\n".join(format_table(rows, SCHEDULE_COLUMNS, now=time.time(), has_headings=False)))
    else:
        print_to_stderr('no schedules; add one with podium schedule add "0 9 * * 1-5" AGENT REQUEST')
    for one in found:
        if one.missed:
            last = _format_time(one.missed_at, one.zone)
            print_to_stderr(
                f"{one.id}: missed {format_count(one.missed, 'time')}, last at {last}, because no process was running"
            )
        if one.error:
            print_to_stderr(f"{one.id}: the last run could not be started: {one.error}")
    if any(row.is_elsewhere for row in rows):
        print_to_stderr(
            f'the runs of a schedule marked "{ELSEWHERE}" are started on the machine where the schedule was added, '
            "because its repository is there"
        )
    _print_if_unattended(settings)


@schedule_command.command("remove")
@click.argument("schedule")
def schedule_remove_command(schedule: str) -> None:
    """Remove a schedule. Its runs are kept."""
    from ...schedules.schedule_editing import remove_schedule  # imported here to keep start-up fast

    settings = Settings.load(repo=find_repo(Path()))
    found = remove_schedule(settings, schedule, by=get_command_actor())
    print_to_stderr(f"removed {found.id}")


@schedule_command.command("pause")
@click.argument("schedule")
def schedule_pause_command(schedule: str) -> None:
    """Pause a schedule. Runs that would be due while it is paused are not counted as missed."""
    from ...schedules.schedule_editing import pause_schedule  # imported here to keep start-up fast

    settings = Settings.load(repo=find_repo(Path()))
    found = pause_schedule(settings, schedule, by=get_command_actor())
    print_to_stderr(f"paused {found.id}; continue it with podium schedule resume {found.id}")


@schedule_command.command("resume")
@click.argument("schedule")
def schedule_resume_command(schedule: str) -> None:
    """Resume a paused schedule. Runs that were due while it was paused are skipped."""
    from ...schedules.schedule_editing import resume_schedule  # imported here to keep start-up fast

    settings = Settings.load(repo=find_repo(Path()))
    found = resume_schedule(settings, schedule, by=get_command_actor())
    print_to_stderr(f"{found.id} is due next at {_format_time(found.next_at, found.zone)}")


@schedule_command.command("start")
def schedule_start_command() -> None:
    """Start the background process for scheduled runs, for example after this machine was rebooted."""
    from ...schedules.schedule_editing import start_scheduling  # imported here to keep start-up fast

    settings = Settings.load(repo=find_repo(Path()))
    if not Schedules(settings.store).list_active():
        raise Mistake("there are no active schedules; add one with podium schedule add")
    start_scheduling(settings)


def _print_if_unattended(settings: Settings) -> None:
    from ...schedules.schedule_firing import describe_unattended_schedules  # imported here to keep start-up fast

    if told := describe_unattended_schedules(settings):
        print_to_stderr(told)


class ScheduleRow(NamedTuple):
    """A schedule in the list, and whether its runs are started on another machine."""

    schedule: Schedule
    is_elsewhere: bool = False


def _format_next(row: ScheduleRow) -> str:
    one = row.schedule
    due = "paused" if one.is_paused else f"next {_format_time(one.next_at, one.zone)}"
    return f"{due} ({ELSEWHERE})" if row.is_elsewhere else due


def _format_last(row: ScheduleRow) -> str:
    return f"last run {row.schedule.last_run}" if row.schedule.last_run else "no run yet"


SCHEDULE_COLUMNS: tuple[Column[ScheduleRow], ...] = (
    Column("id", "Schedule", lambda row: row.schedule.id),
    Column("when", "When", lambda row: row.schedule.cron),
    Column("zone", "Time zone", lambda row: row.schedule.zone, shown="nowhere"),
    Column("agent", "Agent", lambda row: row.schedule.agent),
    Column(
        "next_at",
        "Next",
        lambda row: None if row.schedule.is_paused else row.schedule.next_at,
        "age",
        text=_format_next,
    ),
    Column("last_run", "Last run", lambda row: row.schedule.last_run or None, text=_format_last),
    Column("last_at", "Last time", lambda row: row.schedule.last_at or None, "age", shown="nowhere"),
    Column(
        "request",
        "Request",
        lambda row: row.schedule.request,
        text=lambda row: truncate_line(row.schedule.request, LONGEST_REQUEST),
    ),
    Column("repo", "Repository", lambda row: row.schedule.root, shown="nowhere"),
    Column("host", "Machine", lambda row: row.schedule.host, shown="nowhere"),
    Column("paused", "Paused", lambda row: row.schedule.is_paused, "data", shown="nowhere"),
    Column("missed", "Missed", lambda row: row.schedule.missed, "number", shown="nowhere"),
    Column("missed_at", "Missed last", lambda row: row.schedule.missed_at or None, "age", shown="nowhere"),
    Column("error", "Error", lambda row: row.schedule.error, shown="nowhere"),
)
"""The columns of the list of schedules."""


def _format_time(at: float, zone: str) -> str:
    """Return a time in the given time zone, followed by the zone's name."""
    return f"{datetime.fromtimestamp(at, load_zone(zone)):%Y-%m-%d %H:%M} {zone}"
