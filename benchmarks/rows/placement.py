"""Placing jobs on hosts: dispatch, takeover, draining a queue; against bare LISTEN/NOTIFY, the lease and bare rows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from time import perf_counter
from typing import Any

from podium.fleet.pgqueuer_placement import install_queue
from podium.testing.postgres_cluster import run_cluster

from ..harness import LIMIT, OURS, Bench, Child, Sample, interleave_samples, start_child
from ..result_line import MILLISECONDS, PER_SECOND, Line, make_line

ROUNDS = 5
TIMES = 100
SHARES = (0.5, 0.95)
LEASE = 3.0
TAKEOVER_ROUNDS = 3
JOBS = 1000
CLAIMANTS = (1, 2, 4, 8)


def lines(bench: Bench) -> Iterator[Line]:
    """Measure the queue. The server does not wait for the disk."""
    most = max(CLAIMANTS) if not bench.is_quick else 2
    with ExitStack() as stack:
        database = stack.enter_context(run_cluster()).make_url()
        asyncio.run(install_queue(database))
        hosts = [
            stack.enter_context(start_child("children.placement_host", name=f"host {number}")) for number in range(most)
        ]
        bare = [
            stack.enter_context(start_child("children.raw_placement", name=f"bare {number}")) for number in range(most)
        ]
        where = {"url": database}
        yield from _measure_dispatch(bench, hosts[0], bare[0], where)
        yield from _measure_takeover(bench, hosts[0], where)
        yield from _measure_drain(bench, hosts, bare, where)


def _measure_dispatch(bench: Bench, host: Child, bare: Child, where: dict[str, Any]) -> Iterator[Line]:
    for share in SHARES:
        request = {"times": bench.scale_count(TIMES, quick=10), "share": share}
        turns = {
            OURS: partial(host.ask, "dispatch", **where, **request),
            LIMIT: partial(bare.ask, "dispatch", **where, **request),
        }
        taken = interleave_samples(turns, rounds=bench.scale_count(ROUNDS, quick=1))
        what = f"a job starts on an idle host: {share:.0%}"
        yield make_line(bench, taken, row="placement", what=what, unit=MILLISECONDS)


def _measure_takeover(bench: Bench, host: Child, where: dict[str, Any]) -> Iterator[Line]:
    lease = LEASE if not bench.is_quick else 1.0
    rounds = bench.scale_count(TAKEOVER_ROUNDS, quick=1)
    taken = {
        OURS: [host.ask("take_over", **where, lease=lease) for _ in range(rounds)],
        LIMIT: [Sample(wall=lease)],
    }
    what = f"the job of a dead host is taken over, lease {lease:g} s"
    yield make_line(bench, taken, row="placement", what=what, unit=MILLISECONDS)


def _measure_drain(
    bench: Bench, hosts: Sequence[Child], bare: Sequence[Child], where: dict[str, Any]
) -> Iterator[Line]:
    jobs = bench.scale_count(JOBS, quick=50)
    for count in [count for count in CLAIMANTS if count <= len(hosts)]:
        turns: dict[str, Callable[[], Sample]] = {
            OURS: partial(_drain, hosts[:count], jobs, where),
            LIMIT: partial(_drain, bare[:count], jobs, where),
        }
        taken = interleave_samples(turns, rounds=bench.scale_count(TAKEOVER_ROUNDS, quick=1))
        what = f"{jobs:,} jobs, claimed and finished by {count}"
        yield make_line(bench, taken, row="placement", what=what, unit=PER_SECOND)


def _drain(hosts: Sequence[Child], jobs: int, where: dict[str, Any]) -> Sample:
    """Fill a queue, then let all hosts drain it at the same time. The time is for one job."""
    hosts[0].ask("fill", jobs=jobs, **where)
    begin = perf_counter()
    with ThreadPoolExecutor(len(hosts)) as pool:
        asked = [pool.submit(partial(host.ask, "drain", checks=False, **where)) for host in hosts]
        for one in asked:
            one.result()
    wall = perf_counter() - begin
    failed = hosts[0].ask("drain", checks=True, **where).failed
    return Sample(wall=wall / jobs, failed=failed)
