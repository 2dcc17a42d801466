"""Runs on a fleet whose hosts, commander, database and connections fail at random: every promise is checked afterwards.

The seed is printed. PODIUM_HISTORY_SEED repeats the plan and the order of the faults of a failure;
PODIUM_HISTORY_RUNS and PODIUM_HISTORY_HOSTS change the size of the long history.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import anyio
import pytest
from anyio import create_task_group, to_thread

from podium.testing import ModelServer
from podium.testing.postgres_cluster import PostgresCluster, run_cluster

from ..fleet_lab import create_store
from .faults import Faults
from .history_check import HistoryCheck, HistoryReport
from .history_lab import HistoryLab, open_history_lab
from .run_plan import make_plan

SHORT_FAULTS = ("host killed", "database crashed")
LONGEST_PAUSE = 6.0
"""Seconds between two faults."""
LIMIT = 300.0
"""Seconds after the last fault in which all runs must end."""


@pytest.fixture
def cluster() -> Iterator[PostgresCluster]:
    with run_cluster("max_connections=300") as cluster:
        yield cluster


def choose_seed() -> int:
    """Return the seed that the environment gives, or a new one."""
    given = os.environ.get("PODIUM_HISTORY_SEED", "")
    return int(given) if given else secrets.randbelow(1_000_000)


async def check_history(
    cluster: PostgresCluster, *, runs: int, hosts: int, slots: int, kinds: tuple[str, ...] = ()
) -> HistoryReport:
    """Let a fleet work on runs while faults happen, and check the history. Without `kinds`, faults are random."""
    seed = choose_seed()
    print(f"seed {seed} (repeat with PODIUM_HISTORY_SEED={seed})")
    with TemporaryDirectory(prefix="pdm-") as folder:
        url = cluster.create_database("history")
        await to_thread.run_sync(create_store, url, Path(folder))
        plan = make_plan(seed, runs, Path(folder).resolve() / "effects")
        async with (
            ModelServer(log=Path(folder) / "calls", keeps_calls=False) as server,
            open_history_lab(Path(folder).resolve(), cluster, url, server, plan, hosts=hosts) as lab,
        ):
            await lab.add_services(hosts, answerers=2, slots=slots)
            faults = Faults(lab, Random(seed))
            try:
                await _work_through(lab, faults, kinds)
                report = await to_thread.run_sync(HistoryCheck(lab).run)
            except BaseException:
                _print_logs(lab, faults)
                raise
            print(f"{dict(faults.count)}\n{report}")
            if report.problems:
                _print_logs(lab, faults)
                print("\n".join(("problems:", *report.problems)))
            assert report.problems == [], f"seed {seed}"
            return report


async def _work_through(lab: HistoryLab, faults: Faults, kinds: tuple[str, ...]) -> None:
    """Start everything, inject faults until most of the runs have ended, and wait for the end of all."""
    async with create_task_group() as group:
        group.start_soon(lab.watch_services)
        with anyio.fail_after(LIMIT):
            await lab.wait_hosts_ready()
        if kinds:
            await lab.wait_runs(started=len(lab.plan.runs) // 2, within=LIMIT)
            await faults.inject(kinds)
        else:
            await _inject_until(lab, faults, ended=len(lab.plan.runs) * 9 // 10)
        await lab.wait_runs(ended=len(lab.plan.runs), within=LIMIT)
        await lab.wait_no_jobs(within=LIMIT)
        group.cancel_scope.cancel()


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


async def test_a_killed_host_and_a_crashed_database_lose_nothing_and_double_nothing(cluster: PostgresCluster) -> None:
    report = await check_history(cluster, runs=6, hosts=2, slots=3, kinds=SHORT_FAULTS)

    assert report.runs == 6


@pytest.mark.slow
@pytest.mark.timeout(3600)
async def test_two_hundred_runs_survive_random_faults(cluster: PostgresCluster) -> None:
    began = time.monotonic()
    runs, hosts = int(os.environ.get("PODIUM_HISTORY_RUNS", "200")), int(os.environ.get("PODIUM_HISTORY_HOSTS", "3"))

    report = await check_history(cluster, runs=runs, hosts=hosts, slots=4)

    print(f"{time.monotonic() - began:.0f} s")
    assert report.takeovers > 0
