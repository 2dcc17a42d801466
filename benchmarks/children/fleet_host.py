"""A host of a fleet, which works on the runs of the shared store in its own process, and a commander that queues them.

The host claims, leases, renews and finishes as `podium host` does, with its own login. Its agents run in this process
and not in workers with checkouts, so that the store is what limits the rate.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import psycopg
from anyio import create_task_group

from podium import Agent, App, Settings
from podium.fleet.fleet_database import FleetDatabase, open_fleet_database
from podium.fleet.host_loop import HandBack, HostLoop
from podium.fleet.pgqueuer_placement import PgQueuerPlacement
from podium.store.postgres.schema import load_migrations
from podium.store.run_leases import OwnerId
from podium.values.actor import Actor
from podium.values.errors import RunHeld, RunOver
from podium.values.fleet_job import FleetJob, HostOffer, JobClaim
from podium.values.store_address import PostgresAddress
from podium.values.worker_task import WorkerTask

from ..child import serve
from .raw_placement import compute_quantile

SLOTS = 4
POLL_SECONDS = 0.05
UNFINISHED = "SELECT FROM podium.job WHERE NOT is_over LIMIT 1"
THINKING_SECONDS = 0.2
REPLY = "The sea keeps no records and forgives no debts."
MOVE = {"says": REPLY, "delay": THINKING_SECONDS}
AGENT = Agent(name="poet", engine="scripted", prompt=f"```script\n{json.dumps([MOVE])}\n```")
VERSION = load_migrations()[-1].number


@asynccontextmanager
async def open_app(request: dict[str, Any], owner: OwnerId | None = None) -> AsyncIterator[App]:
    """Open the shared store, with a Podium home of this block's own."""
    with TemporaryDirectory() as home:
        environ = {"PODIUM_HOME": home, "PODIUM_STORE": request["url"]}
        async with App(Settings.load(environ), environ=environ, owner=owner) as app:
            yield app


def get_store(app: App) -> PostgresAddress:
    store = app.settings.store
    assert isinstance(store, PostgresAddress)
    return store


async def create_run(app: App, folder: Path) -> FleetJob:
    """Write a worker's run to the store, for a host."""
    job = FleetJob(run=secrets.token_hex(6), store_version=VERSION)
    task = WorkerTask(root=str(folder), path=str(folder), name=job.run)
    created = await app.runs.create(
        AGENT, "Say something.", {}, worker_task=task, id=job.run, job=job, by=Actor(name="benchmark", channel="api")
    )
    await created.release()
    return job


async def fill(request: dict[str, Any]) -> dict[str, float]:
    """Create runs, and queue them for the hosts."""
    async with open_app(request) as app, PgQueuerPlacement(request["url"]) as placement:
        for _ in range(request["runs"]):
            await placement.submit(await create_run(app, Path(request["folder"])))
    return {}


class Host:
    """A host that works on runs in this process. `begun` is set when it starts to work on one."""

    def __init__(self, app: App, owner: OwnerId, placement: PgQueuerPlacement, database: FleetDatabase) -> None:
        self._app = app
        self._database = database
        self.begun = anyio.Event()
        offer = HostOffer(host=owner.id, store_version=VERSION)
        self.loop = HostLoop(
            placement,
            offer,
            slots=SLOTS,
            run_job=self._run_job,
            leases=database,
            report=print,
            read_limits=database.read_limits,
        )

    async def _run_job(self, claim: JobClaim, epoch: int) -> HandBack | None:
        self.begun.set()
        with suppress(RunHeld, RunOver):
            await (await self._app.runs.claim(claim.job.run, by=Actor(name="benchmark", channel="api"))).run()
        return None


@asynccontextmanager
async def open_host(request: dict[str, Any]) -> AsyncIterator[Host]:
    """Open a host, with the login in the URL."""
    owner = OwnerId()
    async with (
        open_app(request, owner) as app,
        open_fleet_database(get_store(app), owner.id) as database,
        PgQueuerPlacement(request["url"], lease_seconds=owner.lease_seconds) as placement,
    ):
        yield Host(app, owner, placement, database)


async def work(request: dict[str, Any]) -> dict[str, float]:
    """Work until all runs of the store have ended."""
    async with open_host(request) as host, create_task_group() as group:
        group.start_soon(host.loop.run)
        async with await psycopg.AsyncConnection.connect(request["url"], autocommit=True) as connection:
            while (await connection.execute(UNFINISHED)).rowcount:  # noqa: ASYNC110 - a table
                await anyio.sleep(POLL_SECONDS)
        host.loop.drain()
    return {}


async def dispatch(request: dict[str, Any]) -> dict[str, float]:
    """Queue runs for an idle host, one after the other. The time is from `submit` until the host works on the run."""
    times: list[float] = []
    commander = {**request, "url": request["commander"]}
    async with (
        open_app(commander) as app,
        PgQueuerPlacement(commander["url"]) as placement,
        open_host(request) as host,
        create_task_group() as group,
    ):
        group.start_soon(host.loop.run)
        for _ in range(request["times"] + 3):
            job = await create_run(app, Path(request["folder"]))
            host.begun = anyio.Event()
            begin = time.perf_counter()
            await placement.submit(job)
            await host.begun.wait()
            times.append(time.perf_counter() - begin)
            while host.loop.runs:  # noqa: ASYNC110 - the loop has no event for this
                await asyncio.sleep(0.001)
        host.loop.drain()
    return {"wall": compute_quantile(times[3:], request["share"])}


if __name__ == "__main__":
    serve(fill=fill, work=work, dispatch=dispatch)
