"""A fleet on one machine: a PostgreSQL store, a remote, and hosts with homes and logins of their own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import psycopg

from podium.core.journal_rows import find_chain_break
from podium.fleet.fleet_database import FleetDatabase, HostRow, open_fleet_database
from podium.fleet.pgqueuer_placement import install_queue
from podium.store.postgres.connection import close_idle_connections
from podium.store.postgres.login import replace_login
from podium.store.reader import StoreReader
from podium.store.store_connection import open_connection
from podium.values.event import Noticed
from podium.values.store_address import PostgresAddress, make_postgres_address

from ..workers.travel_lab import TravelLab
from ..workers.worker_lab import LONG, open_worker_lab, wait_exited

LEASE = 3.0


@dataclass
class FleetLab(TravelLab):
    """A lab whose store is the PostgreSQL database `url`. The machine `laptop` delegates; hosts work."""

    url: str = ""
    hosts: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)

    @property
    def store(self) -> PostgresAddress:  # type: ignore[override] # the lab's own store is a file
        return make_postgres_address(self.url, self.home)

    @property
    def environ(self) -> dict[str, str]:
        return {**super().environ, "PODIUM_STORE": self.url}

    @property
    def database(self) -> FleetDatabase:
        return open_fleet_database(self.store)

    async def add_host(self, name: str) -> None:
        """Create a host and its login."""
        async with self.database as database:
            login = await database.add_host(name, "secret")
        self.addresses[name] = replace_login(self.store, login, "secret")

    async def start_host(self, name: str, *options: str, **variables: str) -> subprocess.Popen[bytes]:
        """Start a host, with a home of its own, and wait until it takes jobs."""
        if name not in self.addresses:
            await self.add_host(name)
        environ = {
            **self.environ,
            "PODIUM_HOME": str(self.folder / name),
            "PODIUM_STORE": self.addresses[name],
            **variables,
        }
        environ = {key: value for key, value in environ.items() if value}
        with self.host_log(name).open("ab") as log:
            self.hosts[name] = subprocess.Popen(
                [sys.executable, "-P", "-m", "podium", "host", "--lease", str(LEASE), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environ,
                cwd="/",
                start_new_session=True,
            )
        with anyio.fail_after(LONG):
            while b"is ready" not in self.host_log(name).read_bytes():
                assert self.hosts[name].poll() is None, self.host_log(name).read_text()
                await anyio.sleep(0.05)
        return self.hosts[name]

    def host_log(self, name: str) -> Path:
        return self.folder / f"host-{name}.log"

    def logs(self, run: str) -> str:
        files = [*self.folder.glob("host-*.log"), *self.folder.glob(f"*/logs/{run}.log")]
        return "\n".join(f"{file}:\n{file.read_text()}" for file in files)

    async def kill_host(self, name: str) -> None:
        """Kill a host like a power failure: also its workers, and at once."""
        process = self.hosts.pop(name)
        os.kill(process.pid, signal.SIGKILL)
        await wait_exited(process.pid)
        process.wait()

    async def end_host(self, name: str, within: float = LONG) -> int:
        """Ask a host to end, and return its exit code."""
        process = self.hosts.pop(name)
        process.terminate()
        with anyio.fail_after(within):
            await wait_exited(process.pid)
        return process.wait()

    async def wait_taken_over(self, run: str, owner: str) -> float:
        """Wait until a run belongs to another process than `owner`, and return when that was seen."""
        with anyio.fail_after(LONG), psycopg.connect(self.url, autocommit=True) as connection:
            while True:
                found = connection.execute("SELECT owner FROM podium.run WHERE id = %s", (run,)).fetchone()
                if found is not None and found[0] not in (owner, None):
                    return time.time()
                await anyio.sleep(0.02)

    async def wait_for_job_end(self, run: str) -> None:
        """Wait until a run has no job."""
        with anyio.fail_after(LONG):
            while self.query("SELECT FROM podium_queue.job WHERE dedupe_key = %s", run):  # noqa: ASYNC110 - a row
                await anyio.sleep(0.05)

    async def wait_finished_commanders(self) -> None:
        """Wait until all commanders have ended by themselves."""
        for process in self.commanders:
            await wait_exited(process.pid)
            process.wait()

    async def list_hosts(self) -> dict[str, HostRow]:
        async with self.database as database:
            return {host.name: host for host in await database.list_hosts()}

    def query(self, sql: str, *values: Any) -> list[Any]:
        """Return the rows of a query on the store, as the owner of the database."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(sql.encode(), values).fetchall()

    def dump_store(self) -> str:
        """Return all rows of the store and of the queue, with bytes as hexadecimal digits."""
        tables = self.query("SELECT schemaname, tablename FROM pg_tables WHERE schemaname LIKE 'podium%%'")
        rows = [self.query(f"SELECT one::text FROM {schema}.{table} one") for schema, table in tables]
        return "\n".join(text for found in rows for (text,) in found)

    def notices(self, run: str) -> list[str]:
        return [event.text for event in self.events(run, Noticed)]

    def assert_intact(self, run: str, finished: Collection[str] | None = None) -> None:
        """Check that the timeline is complete, and that none of the finished model calls was repeated.

        `finished` are the calls that were finished when a host ended; by default all.
        """
        with StoreReader(self.store) as reader:
            assert find_chain_break(reader.read_rows(run)) is None
        calls = self.finished_calls(run)
        assert {calls[key] for key in (calls if finished is None else finished)} <= {1}

    async def close(self) -> None:
        for process in self.hosts.values():
            process.kill()
            process.wait()
        await super().close()
        for name in self.addresses:
            async with self.database as database:
                await database.remove_host(name)
        close_idle_connections()


def create_store(url: str, folder: Path) -> None:
    """Create the tables of the store, and the queue."""
    with closing(open_connection(make_postgres_address(url, folder), create=True)):
        pass
    asyncio.run(install_queue(url))


@asynccontextmanager
async def open_lab(postgres_url: str) -> AsyncIterator[FleetLab]:
    """Open a lab whose store is an empty database."""
    async with open_worker_lab(partial(FleetLab, url=postgres_url)) as lab:
        await anyio.to_thread.run_sync(create_store, postgres_url, lab.folder)
        yield lab
