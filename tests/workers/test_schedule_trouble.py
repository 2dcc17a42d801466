"""Schedules across clock changes and downtimes, edited while they are due, and with commanders that are killed."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from podium import App, Settings
from podium.schedules.schedule_editing import pause_schedule, remove_schedule
from podium.schedules.schedule_firing import LATE_SECONDS, ScheduleFiring
from podium.store.fault_injection import EXIT_CODE
from podium.store.reader import StoreReader
from podium.store.schedule_rows import Schedule, Schedules
from podium.system.identity import read_host_id
from podium.values.event import RunResumed, RunStarted

from ..actors import ADA
from .worker_lab import WorkerLab, make_scripted_agent, wait_exited

HOUR = 3600.0
DAY = 24 * HOUR
BERLIN = ZoneInfo("Europe/Berlin")


def read_clock(text: str) -> float:
    """Return the first time at which clocks in Berlin show this."""
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN).timestamp()


def add_schedule(lab: WorkerLab, next_at: float, **fields: Any) -> Schedules:
    """Add a schedule, with its agent, and return the schedules of the lab."""
    lab.write_agent(make_scripted_agent("done"))
    lab.home.mkdir(exist_ok=True)
    given: dict[str, Any] = {
        "id": "s1",
        "cron": "0 0 1 1 *",
        "zone": "Europe/Berlin",
        "agent": "hand",
        "request": "look",
        "root": lab.root,
        "host": read_host_id(lab.home),
        "created": next_at - DAY,
        "next_at": next_at,
    }
    schedules = Schedules(lab.settings().store)
    schedules.add(Schedule(**(given | fields)))
    return schedules


async def fire(lab: WorkerLab, now: float, meanwhile: Callable[[Settings], object] | None = None) -> None:
    """Act as a process that looks at the schedules at the time `now`. `meanwhile` happens while it starts a run."""

    def get_settings(repo: str) -> Settings:
        if meanwhile is not None:
            meanwhile(lab.settings())
        return lab.settings()

    async with App(lab.settings(), environ=lab.environ) as app:
        await ScheduleFiring(app.runs, get_settings, now=lambda: now).fire_due()


def list_runs(lab: WorkerLab) -> list[str]:
    with StoreReader(lab.store) as reader:
        return [summary.id for summary in reader.list_runs()]


# When the clock changes


@pytest.mark.parametrize(
    ("start", "started_at"),
    [
        ("2026-03-28 02:30", ["28 02:30 CET", "29 03:30 CEST", "30 02:30 CEST"]),
        ("2026-10-24 02:30", ["24 02:30 CEST", "25 02:30 CEST", "26 02:30 CET"]),
    ],
    ids=["forward", "back"],
)
async def test_a_time_that_the_clock_skips_or_shows_twice_gets_one_run(
    lab: WorkerLab, start: str, started_at: list[str]
) -> None:
    schedules = add_schedule(lab, read_clock(start), cron="30 2 * * *")
    seen = []

    for _ in started_at:
        [due] = schedules.list_all()
        await fire(lab, due.next_at + 1)
        await fire(lab, due.next_at + HOUR + 1)
        [fired] = schedules.list_all()
        seen.append(f"{datetime.fromtimestamp(fired.last_at, BERLIN):%d %H:%M %Z}")

    assert seen == started_at
    assert fired.missed == 0
    assert len(list_runs(lab)) == len(started_at)


@pytest.mark.parametrize(("day", "hours"), [("2026-03-29", 23), ("2026-10-25", 25)])
async def test_each_hour_that_a_day_really_has_is_missed_once(lab: WorkerLab, day: str, hours: int) -> None:
    midnight = read_clock(day)
    schedules = add_schedule(lab, midnight, cron="0 * * * *")

    await fire(lab, midnight + hours * HOUR - 60)

    [schedule] = schedules.list_all()
    assert (schedule.missed, schedule.next_at) == (hours, midnight + hours * HOUR)
    assert list_runs(lab) == []


async def test_a_clock_that_is_set_back_starts_no_run_again(lab: WorkerLab) -> None:
    nine = read_clock("2026-06-01 09:00")
    schedules = add_schedule(lab, nine, cron="0 9 * * *")
    await fire(lab, nine)
    [before] = schedules.list_all()

    await fire(lab, nine - HOUR)
    await fire(lab, nine)

    assert schedules.list_all() == [before]
    assert list_runs(lab) == [before.last_run]


# After a downtime


@pytest.mark.parametrize(("late", "runs", "missed"), [(LATE_SECONDS - 1, 1, 2), (LATE_SECONDS + 1, 0, 3)])
async def test_after_a_downtime_only_a_run_that_is_hardly_late_is_started(
    lab: WorkerLab, late: float, runs: int, missed: int
) -> None:
    nine = read_clock("2026-06-01 09:00")
    schedules = add_schedule(lab, nine, cron="0 9 * * *")

    for _ in range(2):
        await fire(lab, nine + 2 * DAY + late)

    [schedule] = schedules.list_all()
    assert (len(list_runs(lab)), schedule.missed, schedule.next_at) == (runs, missed, nine + 3 * DAY)


# While a run is being started


async def test_a_schedule_that_is_removed_while_its_run_starts_is_gone_and_the_run_is_kept(lab: WorkerLab) -> None:
    nine = read_clock("2026-06-01 09:00")
    schedules = add_schedule(lab, nine)
    [due] = schedules.list_all()

    await fire(lab, nine, lambda settings: remove_schedule(settings, "s1", by=ADA))

    assert schedules.list_all() == []
    assert list_runs(lab) == [due.next_run]


async def test_a_schedule_that_is_paused_while_its_run_starts_stays_paused_and_starts_no_other(lab: WorkerLab) -> None:
    nine = read_clock("2026-06-01 09:00")
    schedules = add_schedule(lab, nine, cron="0 9 * * *")
    [due] = schedules.list_all()

    await fire(lab, nine, lambda settings: pause_schedule(settings, "s1", by=ADA))
    await fire(lab, nine + DAY)

    [paused] = schedules.list_all()
    assert (paused.is_paused, paused.last_run, paused.missed) == (True, due.next_run, 0)
    assert list_runs(lab) == [due.next_run]


async def test_a_schedule_that_is_paused_and_resumed_while_its_run_starts_names_that_run(lab: WorkerLab) -> None:
    nine = read_clock("2026-06-01 09:00")
    schedules = add_schedule(lab, nine, cron="0 9 * * *")
    [due] = schedules.list_all()

    await fire(lab, nine, lambda settings: schedules.set_paused("s1", False, next_at=nine + 2 * DAY))

    [resumed] = schedules.list_all()
    assert list_runs(lab) == [due.next_run]
    assert (resumed.last_run, resumed.last_at, resumed.next_at) == (due.next_run, nine, nine + 2 * DAY)


# With real commanders


def assert_started_once(lab: WorkerLab, due: Schedule) -> None:
    """Check that the due run was created and worked on once, and that the schedule has moved on."""
    assert len(lab.events(due.next_run, RunStarted)) == len(lab.events(due.next_run, RunResumed)) == 1
    [schedule] = Schedules(lab.store).list_all()
    assert (schedule.last_run, schedule.last_at, schedule.missed) == (due.next_run, due.next_at, 0)
    assert schedule.next_at > time.time()
    assert list_runs(lab) == [due.next_run]


async def end_commanders(lab: WorkerLab) -> None:
    """Remove the schedule, and wait until all commanders have ended, because nothing is left to do."""
    remove_schedule(lab.settings(), "s1", by=ADA)
    await lab.wait_finished()


@pytest.mark.slow
async def test_of_two_commanders_one_starts_a_due_run_and_ends_when_the_last_schedule_is_removed(
    lab: WorkerLab,
) -> None:
    [due] = add_schedule(lab, time.time() - 1).list_all()

    both = [lab.start_commander(), lab.start_commander()]
    await lab.wait_ended(due.next_run)

    assert_started_once(lab, due)
    await end_commanders(lab)
    assert [process.wait() for process in both] == [0, 0]
    lab.assert_clean_end(due.next_run)


@pytest.mark.slow
async def test_a_run_whose_commander_dies_right_after_creating_it_is_started_once_by_the_next(lab: WorkerLab) -> None:
    [due] = add_schedule(lab, time.time() - 1).list_all()
    dying = lab.start_commander(PODIUM_FAULT="1")
    await wait_exited(dying.pid)
    assert dying.wait() == EXIT_CODE
    assert (list_runs(lab), lab.events(due.next_run, RunResumed)) == ([due.next_run], [])

    lab.start_commander()
    await lab.wait_ended(due.next_run)

    assert_started_once(lab, due)
    await end_commanders(lab)
    lab.assert_clean_end(due.next_run)


KILLS_ITS_COMMANDER = """
import os, signal, sys

if "podium.programs.fork_server" in sys.orig_argv:
    os.kill(os.getppid(), signal.SIGKILL)
"""


async def test_a_run_whose_commander_is_killed_before_its_process_starts_is_started_once_by_the_next(
    lab: WorkerLab,
) -> None:
    modules = lab.folder / "modules"
    modules.mkdir()
    (modules / "sitecustomize.py").write_text(KILLS_ITS_COMMANDER)
    [due] = add_schedule(lab, time.time() - 1).list_all()
    killed = lab.start_commander(PYTHONPATH=str(modules))
    await wait_exited(killed.pid)
    assert killed.wait() == -9
    [fired] = Schedules(lab.store).list_all()
    assert (fired.last_run, lab.events(due.next_run, RunResumed)) == (due.next_run, [])

    lab.start_commander()
    await lab.wait_ended(due.next_run)

    assert_started_once(lab, due)
    await end_commanders(lab)
    lab.assert_clean_end(due.next_run)
