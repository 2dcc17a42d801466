"""`podium schedule`: send requests to agents at set times."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import click

from ...setup.settings import Settings
from ...store.schedule_rows import Schedule, Schedules
from ...system.host_id import read_host_id
from ...system.locations import find_repo
from ...system.time_zone import load_zone
from ...system.username import get_local_actor
from ...values.errors import Mistake
from ...values.event import SCHEMA
from ...values.plain_text import format_count
from ..terminal.command_options import json_option, read_text_argument, repo_option
from ..terminal.text import align_columns, as_json, escape_for_terminal, print_to_stderr, truncate_line

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
    from ...workers.schedule_editing import NewSchedule, add_schedule

    place = find_repo(repo or Path()).resolve()
    settings = Settings.load(repo=place)
    new = NewSchedule(cron=when, agent=agent, request=read_text_argument(request), place=place, zone=zone)
    schedule = add_schedule(settings, new, by=get_local_actor("command"))
    click.echo(as_json({"schema": SCHEMA, **schedule_fields(schedule)}) if is_json else schedule.id)
    print_to_stderr(f"the next request to {agent} will be sent at {format_time(schedule.next_at, schedule.zone)}")


@schedule_command.command("list")
@json_option
def schedule_list_command(is_json: bool = False) -> None:
    """List the schedules with their next due times, last runs and numbers of missed runs.

    The runs of a schedule are started only on the machine where the schedule was added.
    """
    settings = Settings.load(repo=find_repo(Path()))
    found = Schedules(settings.store).list_all()
    machine = read_host_id(settings.home) if found else ""
    if is_json:
        click.echo(as_json({"schema": SCHEMA, "schedules": [schedule_fields(one) for one in found]}))
    for row in align_columns([_format_row(one, machine) for one in found]) if not is_json else ():
        click.echo(escape_for_terminal("  ".join(row).rstrip()))
    if not found and not is_json:
        print_to_stderr('no schedules; add one with podium schedule add "0 9 * * 1-5" AGENT REQUEST')
    for one in found:
        if one.missed:
            last = format_time(one.missed_at, one.zone)
            print_to_stderr(
                f"{one.id}: missed {format_count(one.missed, 'time')}, last at {last}, because no process was running"
            )
        if one.error:
            print_to_stderr(f"{one.id}: the last run could not be started: {one.error}")
    if any(one.host != machine for one in found):
        print_to_stderr(
            f'the runs of a schedule marked "{ELSEWHERE}" are started on the machine where the schedule was added, '
            "because its repository is there"
        )
    _print_if_unattended(settings)


@schedule_command.command("remove")
@click.argument("schedule")
def schedule_remove_command(schedule: str) -> None:
    """Remove a schedule. Its runs are kept."""
    from ...workers.schedule_editing import remove_schedule  # imported here to keep start-up fast

    settings = Settings.load(repo=find_repo(Path()))
    found = remove_schedule(settings, schedule, by=get_local_actor("command"))
    print_to_stderr(f"removed {found.id}")


@schedule_command.command("pause")
@click.argument("schedule")
def schedule_pause_command(schedule: str) -> None:
    """Pause a schedule. Runs that would be due while it is paused are not counted as missed."""
    from ...workers.schedule_editing import pause_schedule  # imported here to keep start-up fast

    settings = Settings.load(repo=find_repo(Path()))
    found = pause_schedule(settings, schedule, by=get_local_actor("command"))
    print_to_stderr(f"paused {found.id}; continue it with podium schedule resume {found.id}")


@schedule_command.command("resume")
@click.argument("schedule")
def schedule_resume_command(schedule: str) -> None:
    """Resume a paused schedule. Runs that were due while it was paused are skipped."""
    from ...workers.schedule_editing import resume_schedule  # imported here to keep start-up fast

    settings = Settings.load(repo=find_repo(Path()))
    found = resume_schedule(settings, schedule, by=get_local_actor("command"))
    print_to_stderr(f"{found.id} is due next at {format_time(found.next_at, found.zone)}")


@schedule_command.command("start")
def schedule_start_command() -> None:
    """Start the background process for scheduled runs, for example after this machine was rebooted."""
    from ...workers.schedule_editing import start_scheduling  # imported here to keep start-up fast

    settings = Settings.load(repo=find_repo(Path()))
    if not Schedules(settings.store).list_active():
        raise Mistake("there are no active schedules; add one with podium schedule add")
    start_scheduling(settings)


def _print_if_unattended(settings: Settings) -> None:
    from ...workers.schedule_firing import describe_unattended_schedules  # imported here to keep start-up fast

    if told := describe_unattended_schedules(settings):
        print_to_stderr(told)


def schedule_fields(schedule: Schedule) -> dict[str, Any]:
    """Return a schedule as JSON fields."""
    return {
        "id": schedule.id,
        "when": schedule.cron,
        "zone": schedule.zone,
        "agent": schedule.agent,
        "request": schedule.request,
        "repo": schedule.root,
        "host": schedule.host,
        "paused": schedule.is_paused,
        "next_at": None if schedule.is_paused else schedule.next_at,
        "last_at": schedule.last_at or None,
        "last_run": schedule.last_run or None,
        "missed": schedule.missed,
        "missed_at": schedule.missed_at or None,
        "error": schedule.error,
    }


def _format_row(schedule: Schedule, machine: str) -> tuple[str, ...]:
    due = "paused" if schedule.is_paused else f"next {format_time(schedule.next_at, schedule.zone)}"
    due += "" if schedule.host == machine else f" ({ELSEWHERE})"
    last = f"last run {schedule.last_run}" if schedule.last_run else "no run yet"
    return schedule.id, schedule.cron, schedule.agent, due, last, truncate_line(schedule.request, LONGEST_REQUEST)


def format_time(at: float, zone: str) -> str:
    """Return a time in the given time zone, followed by the zone's name."""
    return f"{datetime.fromtimestamp(at, load_zone(zone)):%Y-%m-%d %H:%M} {zone}"
