"""Schedules whose runs the hosts of a machine start."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import anyio
import psycopg
import pytest

from podium.store.reader import StoreReader
from podium.store.schedule_rows import Schedule, Schedules, publish_schedule_key
from podium.values.event import RunResumed

from ..workers.worker_lab import make_scripted_agent
from .fleet_lab import FleetLab, open_lab


@pytest.fixture
async def lab(postgres_url: str) -> AsyncIterator[FleetLab]:
    async with open_lab(postgres_url) as lab:
        yield lab


def add_schedule(lab: FleetLab, id: str) -> Schedule:
    """Add a schedule of the laptop that is due now and then once a year."""
    due = time.time() - 1
    schedule = Schedule(
        id=id,
        cron="0 0 1 1 *",
        zone="UTC",
        agent="hand",
        request="look",
        root=str(lab.repo.path),
        host=lab.host,
        created=due - 10,
        next_at=due,
    )
    Schedules(lab.store).add(schedule)
    publish_schedule_key(lab.store, lab.home)
    return schedule


@pytest.mark.slow
async def test_two_hosts_of_a_machine_start_each_scheduled_run_once_and_no_other_host_can_say_that_it_did(
    lab: FleetLab,
) -> None:
    lab.write_agent(make_scripted_agent("done"))
    await lab.start_host("alpha", PODIUM_HOME=str(lab.home))
    await lab.start_host("beta", PODIUM_HOME=str(lab.home))
    await lab.start_host("gamma")

    first, second = [await anyio.to_thread.run_sync(add_schedule, lab, id) for id in ("s1", "s2")]

    for schedule in (first, second):
        assert (await lab.wait_ended(schedule.next_run)).outcome == "succeeded"
        assert len(lab.events(schedule.next_run, RunResumed)) == 1
        lab.assert_intact(schedule.next_run)
    with StoreReader(lab.store) as reader:
        assert {summary.id for summary in reader.list_runs()} == {first.next_run, second.next_run}
    with anyio.fail_after(30):
        while not all(one.last_run for one in Schedules(lab.store).list_all()):  # noqa: ASYNC110 - rows
            await anyio.sleep(0.05)
    listed = Schedules(lab.store).list_all()
    assert [(one.last_run, one.error, one.missed) for one in listed] == [
        (first.next_run, "", 0),
        (second.next_run, "", 0),
    ]
    with psycopg.connect(lab.addresses["gamma"], autocommit=True) as liar:
        refused = liar.execute(
            "SELECT podium.record_schedule_as_host('s1', 'guess', %s, 9e9, 0, '', '', 0, 0)", (listed[0].next_at,)
        ).fetchone()
    assert refused == ("forged",)
    assert Schedules(lab.store).list_all() == listed
