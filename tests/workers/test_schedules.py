"""Schedules: one run per time, with two processes, after a crash, late, and when nobody is there."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from anyio import create_task_group

from podium import App
from podium.schedules.schedule_firing import ScheduleFiring
from podium.store.reader import StoreReader
from podium.store.schedule_rows import Schedule, Schedules
from podium.system.identity import get_username, read_host_id
from podium.values.event import RunStarted
from podium.workers.commander_socket import commander_socket_path, is_commander_listening

from ..cli.worker_runs import invoke_podium, invoke_podium_json, open_lab
from .worker_lab import WorkerLab, make_scripted_agent

pytestmark = pytest.mark.anyio

NINE = 1_767_607_200.0
"""Monday, 5 January 2026, 10:00 UTC."""
DAY = 86_400.0


@pytest.fixture
async def lab(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[WorkerLab]:
    async with open_lab() as lab:
        monkeypatch.chdir(lab.repo.path)
        lab.write_agent(make_scripted_agent("done"))
        yield lab


def add_schedule(lab: WorkerLab, **fields: Any) -> Schedules:
    given: dict[str, Any] = {
        "id": "s1",
        "cron": "0 10 * * *",
        "zone": "UTC",
        "agent": "hand",
        "request": "look",
        "root": str(lab.repo.path),
        "host": read_host_id(lab.home),
        "created": NINE - DAY,
        "next_at": NINE,
    }
    schedules = Schedules(lab.settings().store)
    schedules.add(Schedule(**(given | fields)))
    return schedules


def list_runs(lab: WorkerLab) -> list[str]:
    with StoreReader(lab.settings().store) as reader:
        return [summary.id for summary in reader.list_runs()]


async def fire(lab: WorkerLab, now: float) -> float | None:
    """Act as one process that looks at the schedules at the time `now`."""
    async with App(lab.settings(), environ=lab.environ) as app:
        return await ScheduleFiring(app.runs, lambda repo: lab.settings(), now=lambda: now).fire_due()


async def test_a_time_gets_one_run_from_two_processes_and_after_a_crash(lab: WorkerLab) -> None:
    schedules = add_schedule(lab)
    [before] = schedules.list_all()

    early = await fire(lab, NINE - 5)
    assert (early, list_runs(lab)) == (5.0, [])
    async with create_task_group() as tasks:
        tasks.start_soon(fire, lab, NINE + 1)
        tasks.start_soon(fire, lab, NINE + 1)
    [after] = schedules.list_all()
    runs = list_runs(lab)
    # A process that is killed after it created the run has not advanced the schedule.
    schedules.set_paused("s1", False, next_at=NINE)
    await fire(lab, NINE + 2)

    assert runs == list_runs(lab) == [before.next_run]
    assert (after.last_run, after.last_at, after.next_at) == (before.next_run, NINE, NINE + DAY)
    assert schedules.list_all() == [after]


async def test_times_that_nobody_was_there_for_are_counted_and_not_made_up(lab: WorkerLab) -> None:
    schedules = add_schedule(lab)

    await fire(lab, NINE + 3 * DAY + 3600)
    [missed] = schedules.list_all()
    said = await invoke_podium(lab, "schedule", "list")
    wait = await fire(lab, NINE + 4 * DAY + 60)

    assert (missed.missed, missed.missed_at, missed.next_at) == (4, NINE + 3 * DAY, NINE + 4 * DAY)
    assert "s1: missed 4 times, last at 2026-01-08 10:00 UTC, because no process was running" in said.stderr
    assert "no commander is running, so 1 active schedule will not start any runs" in said.stderr
    assert (len(list_runs(lab)), wait) == (1, 30.0)


async def test_a_year_of_missed_minutes_is_passed_over_quickly(lab: WorkerLab) -> None:
    schedules = add_schedule(lab, cron="* * * * *")

    await fire(lab, NINE + 365 * DAY)

    [schedule] = schedules.list_all()
    assert schedule.missed >= 10_000
    assert schedule.next_at > NINE + 365 * DAY - 700
    assert list_runs(lab) == []


async def test_an_agent_or_a_folder_that_is_gone_is_said_and_the_schedule_goes_on(lab: WorkerLab) -> None:
    schedules = add_schedule(lab, agent="gone\x1b[31m")
    add_schedule(lab, id="s2", root=str(lab.folder / "away"))
    add_schedule(lab, id="s3", host="another-machine", root="/nowhere")

    await fire(lab, NINE)
    said = await lab.run_podium("schedule", "list")

    first, second, elsewhere = schedules.list_all()
    assert "not found" in first.error
    assert "\x1b" not in first.error
    assert second.error == f"{lab.folder / 'away'} does not exist"
    assert (first.next_at, second.next_at, elsewhere.next_at) == (NINE + DAY, NINE + DAY, NINE)
    assert ["(on another machine)" in line for line in said.stdout.splitlines()] == [False, False, True]
    assert 'the runs of a schedule marked "on another machine" are started on the machine where' in said.stderr
    assert list_runs(lab) == []


async def test_the_commander_stays_and_a_killed_one_is_missed_until_another_is_started(lab: WorkerLab) -> None:
    added = await invoke_podium_json(lab, "schedule", "add", "0 9 * * *", "hand", "look", "--zone", "Asia/Tokyo")
    schedules = Schedules(lab.settings().store)
    [schedule] = schedules.list_all()
    schedules.set_paused(added["id"], False, next_at=time.time() - 1)
    [due] = schedules.list_all()

    await invoke_podium(lab, "schedule", "start")
    await lab.wait_ended(due.next_run)
    commander = commander_socket_path(lab.settings().store)
    assert is_commander_listening(commander)
    while is_commander_listening(commander):  # a process that was just started may not be listed yet
        for process in lab.list_processes():
            process.kill()
        await lab.wait_no_processes()
    listed = await invoke_podium(lab, "schedule", "list")
    doctor = await invoke_podium(lab, "doctor")
    paused = await invoke_podium(lab, "schedule", "pause", added["id"][:3])
    quiet = await invoke_podium(lab, "schedule", "list")
    removed = await invoke_podium(lab, "schedule", "remove", added["id"])

    assert (schedule.zone, schedule.root) == ("Asia/Tokyo", str(lab.repo.path))
    [started] = lab.events(due.next_run, RunStarted)
    assert (started.by, started.channel) == (schedule.author, "schedule")
    assert schedule.author == get_username()
    assert f"last run {due.next_run}" in listed.stdout
    assert "no commander is running, so 1 active schedule will not start any runs" in listed.stderr
    assert "no commander is running, so 1 active schedule will not start any runs" in doctor.stdout
    assert (paused.exit_code, "paused" in quiet.stdout, "no commander" in quiet.stderr) == (0, True, False)
    assert (removed.exit_code, schedules.list_all()) == (0, [])


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("add", "0 9 * *", "hand", "look"), "is not a cron expression"),
        (("add", "0 9 * * *", "nobody", "look"), "nobody"),
        (("add", "0 9 * * *", "hand", "look", "--zone", "../../etc/passwd"), "unknown time zone"),
        (("add", "0 9 * * *", "hand", " "), "the text is empty"),
        (("remove", "x"), "schedule 'x' not found; available: none"),
        (("start",), "there are no active schedules"),
    ],
)
async def test_wrong_use_is_explained(lab: WorkerLab, arguments: tuple[str, ...], why: str) -> None:
    said = await invoke_podium(lab, "schedule", *arguments)

    assert said.exit_code != 0
    assert why in f"{said.output}{said.exception}"
    assert lab.list_processes() == []


def test_schedules_are_stored_in_postgresql_too(postgres_url: str, tmp_path: Path) -> None:
    from podium.values.store_address import make_postgres_address

    schedules = Schedules(make_postgres_address(postgres_url, tmp_path))
    schedule = Schedule(
        id="s1", cron="@daily", zone="UTC", agent="a", request="r", root="/r", host="h", created=1.5, next_at=NINE
    )

    schedules.add(schedule)
    schedules.record_missed(schedule, 2, last=NINE, next_at=NINE + DAY)
    [found] = schedules.list_active()
    schedules.record_start(found, next_at=NINE + 2 * DAY)
    [started] = schedules.list_active()
    schedules.set_paused("s1", True, next_at=NINE)

    assert (found.created, found.missed, found.next_at) == (1.5, 2, NINE + DAY)
    assert (started.last_run, started.last_at, started.next_at) == (found.next_run, NINE + DAY, NINE + 2 * DAY)
    assert schedules.list_active() == []
    assert schedules.find("s").is_paused
