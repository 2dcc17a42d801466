"""A fleet whose processes, database and connections fail while it works on many runs."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import msgspec
import psycopg
from anyio import to_thread

from podium.testing import ModelServer
from podium.testing.postgres_cluster import PostgresCluster

from ..fleet_lab import LEASE, FleetLab
from .fault_proxy import FaultProxy
from .run_plan import PROGRAM, HistoryPlan
from .service import Service
from .submitter import LABEL

WATCH_SECONDS = 0.2
COUNT_RUNS = (
    "SELECT count(*) FILTER (WHERE kind = 'run_started'), count(*) FILTER (WHERE kind = 'run_ended') FROM podium.entry"
)
BUSY_HOSTS = "SELECT DISTINCT host.name FROM podium.running_job JOIN podium.host USING (login) ORDER BY 1"
OPEN_RUNS = (
    "SELECT run.id, run.epoch, job.is_over, owner.until - podium.clock_seconds() FROM podium.run"
    " LEFT JOIN podium.job ON job.run = run.id LEFT JOIN podium.owner ON owner.id = run.owner"
    " WHERE NOT EXISTS (SELECT FROM podium.entry WHERE entry.run = run.id AND kind = 'run_ended')"
)
PEOPLE = "people"
"""The name of the proxy between the database and the processes that delegate and answer."""


@dataclass
class HistoryLab(FleetLab):
    """A fleet with its own database server, and a proxy in front of it for each host and for the people."""

    cluster: PostgresCluster = field(kw_only=True)
    plan: HistoryPlan = field(kw_only=True)
    proxies: dict[str, FaultProxy] = field(default_factory=dict)
    services: dict[str, Service] = field(default_factory=dict)

    @property
    def effects(self) -> Path:
        return self.folder / "effects"

    @property
    def attempts(self) -> Path:
        return self.folder / "attempts"

    @property
    def model_log(self) -> Path:
        return self.folder / "calls"

    def list_services(self, kind: str) -> list[Service]:
        """Return the services whose names begin with this word."""
        return [service for name, service in self.services.items() if name.startswith(kind)]

    def make_url(self, proxy: str, url: str) -> str:
        """Return a URL of the database with the port of a proxy."""
        return url.replace(f":{urlsplit(url).port}/", f":{self.proxies[proxy].port}/")

    async def add_services(self, hosts: int, answerers: int, slots: int) -> None:
        """Add the hosts, the submitter, the commanders and the answerers. They start when they are watched."""
        python = [sys.executable, "-m"]
        people = {**self.environ, "PODIUM_STORE": self.make_url(PEOPLE, self.url)}
        self.write_settings(f"sandbox: off\nlabels: [{LABEL}]\n")
        path = f"{self._write_program()}:{os.environ['PATH']}"
        for number in range(1, hosts + 1):
            name = f"host-{number}"
            await self.add_host(name)
            home = self.folder / name
            home.mkdir()
            (home / "config.yaml").write_text("sandbox: off\n")
            store = self.make_url(name, self.addresses[name])
            command = ["podium", "host", "--lease", str(LEASE), "--slots", str(slots), "--labels", LABEL]
            environ = {**self.environ, "PODIUM_HOME": str(home), "PODIUM_STORE": store, "PATH": path}
            self._add_service(name, [*python, *command], environ, ready=b"is ready")
        plan = self.folder / "plan.json"
        plan.write_bytes(msgspec.json.encode(self.plan))
        self._add_service(
            "submitter", [*python, "tests.fleet.history.submitter", str(plan), self.root], people, ends=True
        )
        for team in self.plan.teams:
            command = ["tests.fleet.history.commander", str(plan), team.name, self.root]
            self._add_service(f"commander of {team.name}", [*python, *command], people, ends=True)
        for number in range(1, answerers + 1):
            name = f"answerer-{number}"
            arguments = [f"{name}-{self.plan.seed}", str(self.plan.answered_within), str(self.attempts)]
            self._add_service(name, [*python, "tests.fleet.history.answerer", *arguments], people)

    def _write_program(self) -> Path:
        """Write the program that has an effect, and return its folder."""
        folder = self.folder / "bin"
        folder.mkdir()
        # The line is written in the middle, so that the command can be interrupted before it and after it.
        (folder / PROGRAM).write_text(f'#!/bin/sh\nsleep "$2"; echo "$1" >> {self.effects}; sleep "$2"\n')
        (folder / PROGRAM).chmod(0o755)
        return folder

    def _add_service(
        self, name: str, command: list[str], environ: dict[str, str], *, ready: bytes = b"", ends: bool = False
    ) -> None:
        log = self.folder / f"{name}.log"
        self.services[name] = Service(name, command, environ, log, ready=ready, ends=ends)

    async def watch_services(self) -> None:
        """Start the services again whenever they end, until cancelled."""
        while True:
            for service in self.services.values():
                service.keep_running()
            await anyio.sleep(WATCH_SECONDS)

    async def wait_hosts_ready(self) -> None:
        """Wait until all hosts take jobs."""
        while not all(host.is_ready for host in self.list_services("host")):  # noqa: ASYNC110 - a log file
            await anyio.sleep(WATCH_SECONDS)

    def find_busy_hosts(self) -> list[str]:
        """Return the hosts that work on a run now."""
        return [name for (name,) in self.query(BUSY_HOSTS)]

    async def wait_runs(self, *, within: float, started: int = 0, ended: int = 0) -> None:
        """Wait until so many runs were delegated and have ended. Raise TimeoutError with those that have not."""
        with anyio.move_on_after(within):
            while True:
                found = await to_thread.run_sync(self._count_runs)
                if found[0] >= started and found[1] >= ended:
                    return
                await anyio.sleep(WATCH_SECONDS)
        raise TimeoutError(f"after {within:g} s, these runs have not ended: {self.query(OPEN_RUNS)}")

    async def wait_no_jobs(self, within: float) -> None:
        """Wait until no job is left in the queue."""
        with anyio.fail_after(within):
            while self.query("SELECT FROM podium_queue.job"):  # noqa: ASYNC110 - a table
                await anyio.sleep(WATCH_SECONDS)

    def _count_runs(self) -> tuple[int, int]:
        """Return how many runs were delegated and have ended, or 0 while the database is away."""
        try:
            return self.query(COUNT_RUNS)[0]  # type: ignore[no-any-return]
        except psycopg.OperationalError:
            return 0, 0

    async def close(self) -> None:
        for service in self.services.values():
            service.is_held = True
            service.kill()
        await super().close()


@asynccontextmanager
async def open_history_lab(
    folder: Path, cluster: PostgresCluster, url: str, server: ModelServer, plan: HistoryPlan, *, hosts: int
) -> AsyncIterator[HistoryLab]:
    """Open a lab with this many hosts, each behind a proxy of its own."""
    lab = HistoryLab(folder, server, url=url, cluster=cluster, plan=plan)
    lab.home.mkdir(exist_ok=True)
    async with AsyncExitStack() as stack:
        for name in (PEOPLE, *(f"host-{number}" for number in range(1, hosts + 1))):
            lab.proxies[name] = await stack.enter_async_context(FaultProxy(cluster.port).listen())
        try:
            yield lab
        finally:
            await lab.close()


def read_effects(file: Path) -> list[str]:
    """Return the lines that commands have appended."""
    return file.read_text().split() if file.exists() else []
