"""Runs on a fleet: their dispatch, and the rate of 1 to 8 host processes; against bare transactions of that shape."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import psycopg

from podium import __version__
from podium.fleet.fleet_database import open_fleet_database
from podium.fleet.pgqueuer_placement import install_queue
from podium.store.postgres.login import replace_login
from podium.store.postgres.schema import load_migrations
from podium.store.store_check import check_store
from podium.store.store_connection import open_connection
from podium.testing.postgres_cluster import run_cluster
from podium.values.fleet_job import HostOffer
from podium.values.store_address import PostgresAddress, make_postgres_address

from ..harness import LIMIT, OURS, Bench, Child, Sample, interleave_samples, start_child
from ..result_line import MILLISECONDS, PER_SECOND, Line, make_line

HOSTS = (1, 2, 4, 8)
RUNS = 200
QUEUED = 1_000
ROUNDS = 3
TIMES = 50
SHARES = (0.5, 0.95)
ENDED = b'%"outcome":"succeeded"%'


@dataclass(frozen=True, slots=True)
class Shape:
    """What a run writes to its timeline: the number of transactions, and the rows of each and their bytes."""

    commits: int
    rows: int
    size: int

    def as_request(self) -> dict[str, int]:
        return {"commits": self.commits, "rows": self.rows, "size": self.size}


class FleetStore:
    """A store on a server of its own, with a login for each host."""

    def __init__(self, url: str, folder: Path, hosts: int) -> None:
        self.url = url
        self.folder = folder
        self._store: PostgresAddress = make_postgres_address(url, folder)
        open_connection(self._store, create=True).close()
        asyncio.run(install_queue(url))
        self.logins = asyncio.run(self._add_hosts(hosts))

    async def _add_hosts(self, hosts: int) -> list[str]:
        async with open_fleet_database(self._store) as database:
            names = [await database.add_host(f"bench-{number}", "secret") for number in range(hosts)]
            for url in (logins := [replace_login(self._store, name, "secret") for name in names]):
                await _register_host(url, self.folder)
            return logins

    def read_shape(self) -> Shape:
        """Return what the runs in the store have written, on average."""
        with closing(psycopg.connect(self.url)) as connection:
            [(runs, commits, rows, size)] = connection.execute(
                "SELECT count(DISTINCT run), count(DISTINCT (run, tx)), count(*), avg(length(line))::int"
                " FROM podium.entry"
            ).fetchall()
        each = max(1, round(commits / runs))
        return Shape(each, max(1, round(rows / runs / each)), size)

    def count_lost(self, runs: int) -> int:
        """Return how many of these runs have not ended well, or have a timeline that is damaged."""
        with closing(psycopg.connect(self.url)) as connection:
            [(ended,)] = connection.execute(
                "SELECT count(DISTINCT run) FROM podium.entry WHERE kind = 'run_ended' AND line LIKE %s", (ENDED,)
            ).fetchall()
        return runs - int(ended) + len(check_store(self._store).problems)

    def clear(self) -> None:
        """Delete all runs."""
        with closing(psycopg.connect(self.url, autocommit=True)) as connection:
            connection.execute("TRUNCATE podium.run, podium.entry, podium.worker, podium.mail, podium.job CASCADE")
            connection.execute("TRUNCATE podium_queue.job, podium_queue.job_log")


async def _register_host(url: str, folder: Path) -> None:
    async with open_fleet_database(make_postgres_address(url, folder)) as database:
        offer = HostOffer(host="bench", store_version=load_migrations()[-1].number)
        await database.register_host(offer, slots=8, version=__version__)


def lines(bench: Bench) -> Iterator[Line]:
    """Measure on a server that waits for its disk, as a fleet's server does."""
    most = max(HOSTS) if not bench.is_quick else 2
    with ExitStack() as stack:
        cluster = stack.enter_context(run_cluster(is_durable=True))
        store = FleetStore(cluster.create_database("fleet"), bench.folder, most)
        bare_url = cluster.create_database("bare")
        hosts = [stack.enter_context(start_child("children.fleet_host", name=f"host {n}")) for n in range(most)]
        bare = [stack.enter_context(start_child("children.raw_fleet", name=f"bare {n}")) for n in range(most)]
        notify = stack.enter_context(start_child("children.raw_placement", name="bare notify"))
        yield from _measure_dispatch(bench, store, hosts[0], notify)
        yield from _measure_rates(bench, store, hosts, bare, bare_url)


def _measure_dispatch(bench: Bench, store: FleetStore, host: Child, notify: Child) -> Iterator[Line]:
    for share in SHARES:
        request = {"times": bench.scale_count(TIMES, quick=5), "share": share}
        where = {"url": store.logins[0], "commander": store.url, "folder": str(store.folder)}
        turns = {
            OURS: partial(host.ask, "dispatch", **where, **request),
            LIMIT: partial(notify.ask, "dispatch", url=store.url, **request),
        }
        taken = interleave_samples(turns, rounds=bench.scale_count(ROUNDS, quick=1))
        yield make_line(
            bench,
            taken,
            row="fleet",
            what=f"a run is leased and starts on an idle host: {share:.0%}",
            unit=MILLISECONDS,
        )


def _measure_rates(
    bench: Bench, store: FleetStore, hosts: Sequence[Child], bare: Sequence[Child], bare_url: str
) -> Iterator[Line]:
    runs = bench.scale_count(RUNS, quick=10)
    shape = store.read_shape()
    one: list[Sample] = []
    for count in [count for count in HOSTS if count <= len(hosts)]:
        turns = {
            OURS: partial(_work, hosts[:count], store, runs),
            LIMIT: partial(_work_bare, bare[:count], bare_url, runs, shape),
        }
        taken = interleave_samples(turns, rounds=bench.scale_count(ROUNDS, quick=1))
        one = one or taken[OURS]
        what = f"runs by {count} host{'s' if count > 1 else ''}"
        yield make_line(bench, taken, row="fleet", what=f"{what}, against bare transactions", unit=PER_SECOND)
        if count > 1:
            against_one = {OURS: taken[OURS], LIMIT: one}
            yield make_line(bench, against_one, row="fleet", what=f"{what}, against one", unit=PER_SECOND)
    queued = bench.scale_count(QUEUED, quick=20)
    taken = {
        OURS: [_work(hosts, store, queued)],
        LIMIT: [_work_bare(bare, bare_url, queued, shape)],
    }
    yield make_line(bench, taken, row="fleet", what=f"{queued:,} queued runs, none lost", unit=PER_SECOND)


def _work(hosts: Sequence[Child], store: FleetStore, runs: int) -> Sample:
    """Queue runs, then let all hosts work at the same time. The time is for one run."""
    store.clear()
    hosts[0].ask("fill", url=store.url, runs=runs, folder=str(store.folder))
    requests = [{"url": url} for url in store.logins[: len(hosts)]]
    wall = _time_all(hosts, requests)
    return Sample(wall=wall / runs, failed=store.count_lost(runs))


def _work_bare(bare: Sequence[Child], url: str, runs: int, shape: Shape) -> Sample:
    bare[0].ask("fill", url=url, runs=runs)
    return Sample(wall=_time_all(bare, [{"url": url, **shape.as_request()}] * len(bare)) / runs)


def _time_all(children: Sequence[Child], requests: Sequence[dict[str, Any]]) -> float:
    begin = perf_counter()
    with ThreadPoolExecutor(len(children)) as pool:
        asked = [
            pool.submit(partial(child.ask, "work", **request))
            for child, request in zip(children, requests, strict=True)
        ]
        for one in asked:
            one.result()
    return perf_counter() - begin
