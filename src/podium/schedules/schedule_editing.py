"""Add, pause, resume and remove schedules. A commander, which is started if necessary, starts their runs.

A schedule has no timeline, so only who added it is recorded.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, replace
from pathlib import Path

from ..files.discovery import load_roster
from ..files.settings import Settings
from ..store.schedule_rows import Schedule, Schedules, publish_schedule_key
from ..store.wakeup import send_wakeup
from ..system.identity import read_host_id
from ..system.time_zone import find_local_zone, load_zone
from ..values.actor import Actor, act
from ..values.cron_expression import CronExpression
from ..workers.commander_socket import commander_socket_path, is_commander_listening
from ..workers.delegation import start_commander

START_SECONDS = 5.0
"""The maximum time to wait until a new commander is listening, in seconds.

Without this wait, running `podium schedule list` immediately afterwards could report that no commander is running.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSchedule:
    """A request to send to an agent at set times, in the folder `place`.

    `cron` is a cron expression. `zone` is the name of a time zone, by default this machine's.
    """

    cron: str
    agent: str
    request: str
    place: Path
    zone: str = ""


@act("act")
def add_schedule(settings: Settings, new: NewSchedule, *, by: Actor) -> Schedule:
    """Add a schedule of this machine, and return it. Its runs are started in the name of the one who added it.

    Raise Mistake if the expression, the time zone or the agent is not valid.
    """
    zone = new.zone or find_local_zone()
    next_at = CronExpression.parse(new.cron).find_next(time.time(), load_zone(zone))
    load_roster(new.place, settings.home).resolve_team(new.agent)
    schedule = Schedule(
        id=secrets.token_hex(3),
        cron=new.cron.strip(),
        zone=zone,
        agent=new.agent,
        request=new.request,
        root=str(new.place),
        host=read_host_id(settings.home),
        created=time.time(),
        next_at=next_at,
        author=by.name,
    )
    Schedules(settings.store).add(schedule)
    start_scheduling(settings)
    return schedule


@act("act")
def remove_schedule(settings: Settings, schedule: str, *, by: Actor) -> Schedule:
    """Remove the schedule whose id begins with `schedule`, and return it. Its runs are kept."""
    schedules = Schedules(settings.store)
    found = schedules.find(schedule)
    schedules.remove(found.id)
    send_wakeup(settings.store, "owner")
    return found


@act("act")
def pause_schedule(settings: Settings, schedule: str, *, by: Actor) -> Schedule:
    """Pause a schedule, and return it. Runs that would be due while it is paused are not counted as missed."""
    schedules = Schedules(settings.store)
    found = schedules.find(schedule)
    schedules.set_paused(found.id, True, next_at=found.next_at)
    send_wakeup(settings.store, "owner")
    return found


@act("act")
def resume_schedule(settings: Settings, schedule: str, *, by: Actor) -> Schedule:
    """Resume a paused schedule, and return it. Runs that were due while it was paused are skipped."""
    schedules = Schedules(settings.store)
    found = schedules.find(schedule)
    if found.is_paused:
        next_at = CronExpression.parse(found.cron).find_next(time.time(), load_zone(found.zone))
        schedules.set_paused(found.id, False, next_at=next_at)
        found = replace(found, is_paused=False, next_at=next_at)
    start_scheduling(settings)
    return found


def start_scheduling(settings: Settings) -> None:
    """Make sure that a commander is running, and have it read the schedules again."""
    publish_schedule_key(settings.store, settings.home)
    start_commander(settings)
    path, until = commander_socket_path(settings.store), time.monotonic() + START_SECONDS
    while not is_commander_listening(path) and time.monotonic() < until:
        time.sleep(0.02)
    send_wakeup(settings.store, "owner")
