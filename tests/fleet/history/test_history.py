"""Runs on a fleet whose hosts, commander, database and connections fail at random: every promise is checked afterwards.

The seed is printed. PODIUM_HISTORY_SEED repeats the plan and the order of the faults of a failure, and
PODIUM_HISTORY_RUNS changes the number of runs of the long history.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import anyio
import msgspec
import pytest
from anyio import create_task_group, to_thread

from podium.testing import ModelServer
from podium.testing.postgres_cluster import PostgresCluster, run_cluster

from ..fleet_lab import create_store
from .faults import Faults
from .history_check import HistoryCheck, HistoryReport
from .history_lab import HistoryLab, open_history_lab
from .run_plan import Planning

LONGEST_PAUSE = 6.0
"""Seconds between two faults."""
LIMIT = 180.0
"""Seconds after the last fault in which all runs must end."""


@pytest.fixture
def cluster() -> Iterator[PostgresCluster]:
    with run_cluster("max_connections=300") as cluster:
        yield cluster


def choose_seed() -> int:
    """Return the seed that the environment gives, or a new one."""
    given = os.environ.get("PODIUM_HISTORY_SEED", "")
    return int(given) if given else secrets.randbelow(1_000_000)


@asynccontextmanager
async def open_lab(
    cluster: PostgresCluster, *, runs: int, teams: int, hosts: int, slots: int, longest: float
) -> AsyncIterator[tuple[HistoryLab, Faults]]:
    """Open a fleet with a plan for its runs. If the block fails, print what is needed to understand it."""
    seed = choose_seed()
    print(f"seed {seed} (repeat with PODIUM_HISTORY_SEED={seed})")
    with TemporaryDirectory(prefix="pdm-") as name:
        folder = Path(name).resolve()
        url = cluster.create_database("history")
        await to_thread.run_sync(create_store, url, folder)
        plan = Planning(seed, longest).make_plan(runs, teams)
        async with (
            ModelServer(log=folder / "calls", keeps_calls=False) as server,
            open_history_lab(folder, cluster, url, server, plan, hosts=hosts) as lab,
        ):
            await lab.add_services(hosts, answerers=2, slots=slots)
            faults = Faults(lab, Random(seed))
            try:
                yield lab, faults
            except BaseException:
                _print_logs(lab, faults)
                raise


async def work_through(lab: HistoryLab, inject: Callable[[], Awaitable[None]]) -> HistoryReport:
    """Start everything, inject faults, wait for the end of all runs, and check the history."""
    async with create_task_group() as group:
        group.start_soon(lab.watch_services)
        with anyio.fail_after(LIMIT):
            await lab.wait_hosts_ready()
        await inject()
        await lab.wait_runs(ended=lab.plan.total, within=LIMIT)
        await lab.wait_no_jobs(within=LIMIT)
        group.cancel_scope.cancel()
    checked = await lab.run_podium("store", "check")
    assert checked.returncode == 0, checked
    return await to_thread.run_sync(HistoryCheck(lab).run)


async def _inject_until(lab: HistoryLab, faults: Faults, *, ended: int) -> None:
    async with create_task_group() as group:
        group.start_soon(faults.inject_forever, LONGEST_PAUSE)
        await lab.wait_runs(ended=ended, within=LIMIT * 20)
        group.cancel_scope.cancel()


def _print_logs(lab: HistoryLab, faults: Faults) -> None:
    print("\n".join(faults.log))
    for service in lab.services.values():
        print(f"--- {service.name}, started {service.starts} times\n{service.log.read_text()[-20_000:]}")
    for file in sorted(lab.folder.glob("*/logs/*.log")):
        if text := file.read_text():
            print(f"--- {file}\n{text[-3_000:]}")


@pytest.mark.timeout(360)
async def test_a_killed_host_and_a_crashed_database_lose_nothing_and_double_nothing(cluster: PostgresCluster) -> None:
    async with open_lab(cluster, runs=5, teams=0, hosts=2, slots=3, longest=0.6) as (lab, faults):

        async def inject() -> None:
            await lab.server.wait_calls(1)
            busy = await faults.wait_busy_host()
            async with create_task_group() as group:
                group.start_soon(faults.kill_host, busy)
                group.start_soon(faults.crash_database)

        report = await work_through(lab, inject)

        print(report)
        assert not report.problems, "\n".join(report.problems)
        assert report.runs == 5
        await to_thread.run_sync(check_the_check, lab)


def check_the_check(lab: HistoryLab) -> None:
    """Check that the check finds what it looks for."""
    mark = lab.plan.runs[0].marks[0]
    with lab.effects.open("a") as effects:
        effects.write(f"{mark}\n" * 2)
    key = msgspec.json.decode(lab.model_log.read_bytes().splitlines()[-1])["key"]
    with lab.model_log.open("ab") as calls:
        calls.write(msgspec.json.encode({"at": time.time(), "key": key}) + b"\n")

    problems = "\n".join(HistoryCheck(lab).run().problems)

    assert f"the effect {mark} has happened" in problems
    assert f"the call {key.partition('/')[2]} was repeated" in problems


@pytest.mark.slow
@pytest.mark.timeout(3600)
async def test_two_hundred_runs_survive_random_faults(cluster: PostgresCluster) -> None:
    began = time.monotonic()
    runs = int(os.environ.get("PODIUM_HISTORY_RUNS", "200"))
    async with open_lab(cluster, runs=runs, teams=runs // 25, hosts=3, slots=4, longest=1.5) as (lab, faults):
        report = await work_through(lab, partial(_inject_until, lab, faults, ended=lab.plan.total * 9 // 10))

        print(f"{dict(faults.count)}\n{report}\n{time.monotonic() - began:.0f} s")
        assert not report.problems, "\n".join(report.problems)
        assert report.takeovers > 0
