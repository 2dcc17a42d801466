"""The rows of a fleet in the store's database: hosts, leases, what runs need, limits and rates.

A host changes them only through functions of the database, which check its login. They are in
`store/postgres/migrations/0002_placement.sql`.
"""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime
from types import TracebackType
from typing import Literal

import msgspec

from ..values.errors import StoreFailed
from ..values.fleet_job import FleetJob, HostOffer
from .database_connection import DatabaseConnection
from .host_loop import FullLimits, LeaseAnswer, LeaseRefused, LeaseWon
from .job_sweep import UnfinishedJobs

HostState = Literal["active", "draining", "gone"]

_JOB_COLUMNS = [one.name for one in msgspec.structs.fields(FleetJob)]


class FleetDatabase:
    """A connection to the rows of a fleet, for one process. `owner` is the id under which the process owns runs."""

    def __init__(self, url: str, owner: str) -> None:
        self._owner = owner
        self._database = DatabaseConnection(url)

    async def __aenter__(self) -> FleetDatabase:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._database.aclose()

    # Hosts

    async def register_host(self, offer: HostOffer, *, slots: int, version: str) -> None:
        """Register this host and what it offers. Raise StoreFailed if the login belongs to no host."""
        refusal = await self._call(
            "register_host($1, $2, $3, $4, $5)",
            list(offer.labels),
            slots,
            version,
            offer.store_version,
            datetime.now(UTC),
        )
        if refusal is not None:
            raise StoreFailed(f"host {offer.host} cannot be registered: {refusal}")

    async def report_state(self, state: HostState) -> bool:
        """Report that this host is alive and in this state. Return whether it was asked to drain."""
        return bool(await self._call("heartbeat_host($1, $2)", state, datetime.now(UTC)))

    async def renew_owner(self, lease_seconds: float) -> None:
        """Start or extend this process's lease on all its runs. Raise StoreFailed if it belongs to another login."""
        refusal = await self._call(
            "renew_owner_as_host($1, $2, '', $3, '', $4)", self._owner, socket.gethostname(), os.getpid(), lease_seconds
        )
        if refusal is not None:
            raise StoreFailed(f"the lease of this process was not renewed: {refusal}")

    # Runs

    async def win_lease(self, job: FleetJob) -> LeaseAnswer:
        """Take over a run for this process, if it may."""
        [row] = await self._database.fetch("SELECT * FROM podium.claim_run_as_host($1, $2)", job.run, self._owner)
        match row["refusal"], row["epoch"]:
            case None, int(epoch):
                return LeaseWon(epoch=epoch)
            case ("over" | "held" | "full" | "unfit") as reason, _:
                return LeaseRefused(reason=reason)
            case _:
                # The lease of this process has lapsed. It is renewed, or the process ends.
                return LeaseRefused(reason="held")

    async def holds_lease(self, run: str) -> bool:
        """Return whether this process owns a run, and its lease has not lapsed."""
        rows = await self._database.fetch(
            "SELECT FROM podium.run JOIN podium.owner ON owner.id = run.owner"
            " WHERE run.id = $1 AND owner.id = $2 AND owner.until > extract(epoch FROM clock_timestamp())",
            run,
            self._owner,
        )
        return bool(rows)

    async def read_limits(self) -> FullLimits:
        """Return the teams and providers that are at their limits."""
        rows = await self._database.fetch("SELECT kind, name FROM podium.full_limit")
        return FullLimits(
            teams=frozenset(str(row["name"]) for row in rows if row["kind"] == "team"),
            providers=frozenset(str(row["name"]) for row in rows if row["kind"] == "provider"),
        )

    async def add_job(self, job: FleetJob) -> None:
        """Record what a run needs, before its job is queued. This needs the login of a commander, not of a host."""
        values = [list(one) if isinstance(one, tuple) else one for one in msgspec.structs.astuple(job)]
        places = ", ".join(f"${place}" for place, _ in enumerate(values, start=1))
        columns = ", ".join(_JOB_COLUMNS)
        await self._database.execute(
            f"INSERT INTO podium.job ({columns}) VALUES ({places}) ON CONFLICT (run) DO NOTHING", *values
        )

    async def find_unfinished(self) -> UnfinishedJobs:
        """Return the jobs of all runs that have not ended, and which of the runs a live process owns."""
        columns = ", ".join(f"job.{name}" for name in _JOB_COLUMNS)
        rows = await self._database.fetch(
            f"SELECT {columns}, running_job.run IS NOT NULL AS is_running FROM podium.job"
            " JOIN podium.run ON run.id = job.run LEFT JOIN podium.running_job ON running_job.run = job.run"
            " WHERE NOT job.is_over ORDER BY run.created, job.run"
        )
        return UnfinishedJobs(
            jobs=[msgspec.convert(row, FleetJob) for row in rows],
            running=frozenset(str(row["run"]) for row in rows if row["is_running"]),
        )

    async def reserve_calls(self, provider: str, amount: float = 1.0) -> float:
        """Reserve calls to a provider. Return after how many seconds they may be made; 0 if it has no rate limit."""
        wait = await self._call("take_provider_tokens($1, $2)", provider, amount)
        return wait if isinstance(wait, float) else 0.0

    async def _call(self, function: str, *values: object) -> object:
        [row] = await self._database.fetch(f"SELECT podium.{function} AS result", *values)
        return row["result"]
