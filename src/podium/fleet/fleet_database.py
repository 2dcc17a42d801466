"""A fleet's rows in the store's database: hosts, leases, job requirements, limits and rates.

A host changes them only through database functions, which check its login. The functions are in
`store/postgres/migrations/0002_placement.sql`.

If the server cannot be reached, does not answer in time or cannot execute a statement now, PlacementUnavailable is
raised. The next statement opens a new connection if needed. No statement is retried automatically, because the
server may already have executed it. If the server refuses a statement, StoreFailed is raised.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Literal

import msgspec
import psycopg
from psycopg import AsyncConnection, AsyncRawCursor
from psycopg.rows import dict_row

from ..store.postgres.login import parse_login, require_safe_connection
from ..values.errors import Mistake, PlacementUnavailable, StoreCorrupt, StoreFailed
from ..values.event import RunPaused, decode_entry
from ..values.fleet_job import LOST_SECONDS, FleetJob, HostOffer
from ..values.store_address import PostgresAddress
from ..views.run_phase import is_startable
from .host_loop import FullLimits, LeaseAnswer, LeaseRefused, LeaseWon, UnfinishedJobs

REFRESH_SECONDS = 10.0
"""How long the list of rate-limited providers is cached."""


class ProviderRates:
    """Reserves capacity under the providers' rate limits for the calls that one process makes.

    Calls to providers without a rate limit need no reservation.
    """

    def __init__(self, store: PostgresAddress) -> None:
        self._database = open_fleet_database(store)
        self._limited: frozenset[str] = frozenset()
        self._read_at = -REFRESH_SECONDS

    async def __aenter__(self) -> ProviderRates:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._database.__aexit__(exc_type, exc, traceback)

    async def reserve_call(self, provider: str) -> float:
        """Reserve capacity for a call to a provider, and return how many seconds to wait before making it.

        Return 0 if the provider has no rate limit, or if the database is unavailable.
        """
        try:
            if time.monotonic() >= self._read_at + REFRESH_SECONDS:
                self._limited = await self._database.list_limited_providers()
                self._read_at = time.monotonic()
            return await self._database.reserve_calls(provider) if provider in self._limited else 0.0
        except PlacementUnavailable:
            return 0.0


ANSWER_SECONDS = 10.0
"""How long a statement may take before its connection is considered dead."""
_OPTIONS: dict[str, Any] = {
    "application_name": "podium",
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 3,
    "keepalives_count": 3,
}


class DatabaseConnection:
    """A connection that is opened on demand. Statements from several tasks are executed one after another."""

    def __init__(self, url: str, *, answer_seconds: float = ANSWER_SECONDS) -> None:
        self._url = url
        self._answer_seconds = answer_seconds
        self._lock = asyncio.Lock()
        self._connection: AsyncConnection | None = None

    async def fetch(self, query: str, *values: object) -> list[dict[str, object]]:
        """Execute a statement with the parameters $1, $2 and so on, and return its rows."""
        return (await self._execute(query, values)) or []

    async def execute(self, query: str, *values: object) -> None:
        """Execute a statement that returns no rows, or whose rows do not matter."""
        await self._execute(query, values)

    async def open(self) -> tuple[AsyncConnection, bool]:
        """Return the open connection, and whether it is new. Raise PlacementUnavailable if it cannot be opened."""
        if self._connection is not None and not self._connection.closed:
            return self._connection, False
        try:
            self._connection = await AsyncConnection.connect(self._url, autocommit=True, **_OPTIONS)
        except psycopg.OperationalError as error:
            raise PlacementUnavailable(f"cannot connect to the fleet's database: {_first_line(error)}") from error
        return self._connection, True

    async def aclose(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    async def _execute(self, query: str, values: tuple[object, ...]) -> list[dict[str, object]] | None:
        async with self._lock:
            if self._connection is not None and _has_input(self._connection):
                # Between statements, a server sends data only to end the session.
                await self._connection.close()
            connection, _ = await self.open()
            # The watchdog shuts down the socket. A timeout would instead cancel the statement, and cancelling waits for
            # a server that may not answer.
            watchdog = asyncio.get_running_loop().call_later(self._answer_seconds, _cut_connection, connection)
            try:
                cursor = AsyncRawCursor(connection, row_factory=dict_row)
                await cursor.execute(query, values or None)
                return None if cursor.description is None else await cursor.fetchall()
            except psycopg.OperationalError as error:
                if _is_gone(error):
                    await connection.close()
                raise PlacementUnavailable(f"the fleet's database failed: {_first_line(error)}") from error
            except psycopg.Error as error:
                raise StoreFailed(f"the fleet's database refused a statement: {_first_line(error)}") from error
            except asyncio.CancelledError:
                await connection.close()
                raise
            finally:
                watchdog.cancel()


HostState = Literal["active", "draining", "gone"]
HEARTBEAT_SECONDS = 2.0
_JOB_COLUMNS = [one.name for one in msgspec.structs.fields(FleetJob)]


def open_fleet_database(store: PostgresAddress, owner: str = "") -> FleetDatabase:
    """Return a FleetDatabase for the fleet's tables in a store's database.

    Raise Mistake if the database may be on another machine and the connection does not verify the server's certificate.
    """
    require_safe_connection(store, parse_login(store))
    return FleetDatabase(store.url, owner)


class HostRow(msgspec.Struct, frozen=True, kw_only=True):
    """A registered host: its labels, slots and versions, how many runs it works on, and its last heartbeat."""

    name: str
    labels: tuple[str, ...]
    slots: int
    version: str
    store_version: int
    state: HostState
    seconds_ago: float | None
    clock_offset: float
    """How many seconds the host's clock is ahead of the database's."""
    running: int

    @property
    def is_alive(self) -> bool:
        """Whether the host is active and has sent a heartbeat recently, so it is probably claiming jobs."""
        return self.state == "active" and self.seconds_ago is not None and self.seconds_ago < LOST_SECONDS


class FleetDatabase:
    """Access to a fleet's tables, for one process. `owner` identifies the process as the owner of its runs."""

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
        """Register this host with its labels, slots and versions. Raise StoreFailed if the login is not a host's."""
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
        """Start or extend this process's lease on all its runs. Raise StoreFailed if another login has the lease."""
        refusal = await self._call(
            "renew_owner_as_host($1, $2, '', $3, '', $4)", self._owner, socket.gethostname(), os.getpid(), lease_seconds
        )
        if refusal is not None:
            raise StoreFailed(f"the lease of this process was not renewed: {refusal}")

    async def list_hosts(self) -> list[HostRow]:
        """Return all hosts, with the number of runs that each works on."""
        rows = await self._database.fetch(
            "SELECT host.name, host.labels, host.slots, host.version, host.store_version, host.state,"
            " extract(epoch FROM clock_timestamp() - host.seen)::float8 AS seconds_ago,"
            " host.clock_offset,"
            " (SELECT count(*) FROM podium.running_job WHERE running_job.login = host.login)::int AS running"
            " FROM podium.host ORDER BY host.name"
        )
        return [msgspec.convert(row, HostRow) for row in rows]

    async def add_host(self, name: str, password: str) -> str:
        """Create a host and its database login, and return the name of the login.

        Raise Mistake if the host or its login already exists, or if the process is not connected as an owner of the
        database that is allowed to create roles.
        """
        try:
            return str(await self._call("create_host_login($1, $2)", name, password))
        except StoreFailed as error:
            match getattr(error.__cause__, "sqlstate", None):
                case "23505":
                    why = f"host {name} already exists; to change its password, first run podium hosts remove {name}"
                case "42710":
                    why = f"another database on this server has a host {name}; use another name"
                case "42501":
                    why = (
                        "only the owner of the database can add hosts, and its login must be allowed to create roles; "
                        "a superuser can allow this with ALTER ROLE NAME CREATEROLE"
                    )
                case _:
                    raise
            raise Mistake(f"cannot add the host {name}: {why} ({error})") from error

    async def remove_host(self, name: str) -> bool:
        """Remove a host and its database login. Return False if there is no such host.

        Only the owner of the database can do this.
        """
        return bool(await self._call("drop_host_login($1)", name))

    # Runs

    async def win_lease(self, job: FleetJob) -> LeaseAnswer:
        """Take over a run for this process, if that is allowed."""
        [row] = await self._database.fetch("SELECT * FROM podium.claim_run_as_host($1, $2)", job.run, self._owner)
        match row["refusal"], row["epoch"]:
            case None, int(epoch):
                return LeaseWon(epoch=epoch)
            case ("over" | "held" | "full" | "unfit") as reason, _:
                return LeaseRefused(reason=reason)
            case _:
                # The lease of this process has lapsed. The process either renews it soon or ends.
                return LeaseRefused(reason="held")

    async def release_run(self, run: str) -> None:
        """Release a run, if this process owns it, so that another host can take it over at once."""
        await self._database.execute(
            "SELECT podium.release_run_as_host(id, owner, epoch) FROM podium.run WHERE id = $1 AND owner = $2",
            run,
            self._owner,
        )

    async def holds_lease(self, run: str) -> bool:
        """Return whether this process owns a run and its lease has not lapsed."""
        rows = await self._database.fetch(
            "SELECT FROM podium.run JOIN podium.owner ON owner.id = run.owner"
            " WHERE run.id = $1 AND owner.id = $2 AND owner.until > extract(epoch FROM clock_timestamp())",
            run,
            self._owner,
        )
        return bool(rows)

    async def find_waiting_runs(self, runs: Sequence[str]) -> frozenset[str]:
        """Return the runs among `runs` that have unfinished workers."""
        query = "SELECT run FROM podium.waiting_run WHERE run = ANY ($1::text[])"
        return frozenset(str(row["run"]) for row in await self._database.fetch(query, list(runs)))

    async def read_limits(self) -> FullLimits:
        """Return the teams and providers that are at their limits."""
        rows = await self._database.fetch("SELECT kind, name FROM podium.full_limit")
        return FullLimits(
            teams=frozenset(str(row["name"]) for row in rows if row["kind"] == "team"),
            providers=frozenset(str(row["name"]) for row in rows if row["kind"] == "provider"),
        )

    async def add_job(self, job: FleetJob) -> None:
        """Record what a run needs, before its job is queued. This requires a commander's login, not a host's."""
        values = [list(one) if isinstance(one, tuple) else one for one in msgspec.structs.astuple(job)]
        places = ", ".join(f"${place}" for place, _ in enumerate(values, start=1))
        columns = ", ".join(_JOB_COLUMNS)
        await self._database.execute(
            f"INSERT INTO podium.job ({columns}) VALUES ({places}) ON CONFLICT (run) DO NOTHING", *values
        )

    async def find_unfinished(self) -> UnfinishedJobs:
        """Return the jobs of all runs that have not ended and are not paused, and the runs that a live process owns.

        A run that is waiting for a provider's limit to reset counts as paused until then.
        """
        columns = ", ".join(f"job.{name}" for name in _JOB_COLUMNS)
        rows = await self._database.fetch(
            f"SELECT {columns}, running_job.run IS NOT NULL AS is_running, pause.line AS pause FROM podium.job"
            " JOIN podium.run ON run.id = job.run LEFT JOIN podium.running_job ON running_job.run = job.run"
            " LEFT JOIN podium.entry AS pause ON pause.run = job.run AND pause.kind = 'run_paused' AND pause.seq = ("
            "SELECT max(seq) FROM podium.entry WHERE entry.run = job.run"
            ") WHERE NOT job.is_over ORDER BY run.created, job.run"
        )
        rows = [row for row in rows if not _is_paused(row["pause"])]
        return UnfinishedJobs(
            jobs=[msgspec.convert(row, FleetJob) for row in rows],
            running=frozenset(str(row["run"]) for row in rows if row["is_running"]),
        )

    async def list_limited_providers(self) -> frozenset[str]:
        """Return the providers with a rate limit that all machines share."""
        rows = await self._database.fetch("SELECT provider FROM podium.provider_rate")
        return frozenset(str(row["provider"]) for row in rows)

    async def reserve_calls(self, provider: str, amount: float = 1.0) -> float:
        """Reserve capacity for calls to a provider, and return how many seconds to wait before making them.

        Return 0 if the calls can be made now, or if the provider has no rate limit.
        """
        wait = await self._call("take_provider_tokens($1, $2)", provider, amount)
        return wait if isinstance(wait, float) else 0.0

    async def _call(self, function: str, *values: object) -> object:
        [row] = await self._database.fetch(f"SELECT podium.{function} AS result", *values)
        return row["result"]


def _is_paused(line: object) -> bool:
    """Return whether a run is paused now. `line` is the run's last entry if it is a pause, and None otherwise."""
    if not isinstance(line, bytes):
        return False
    try:
        event = decode_entry(line).event
    except StoreCorrupt:
        return True  # a malicious host can write anything
    return not isinstance(event, RunPaused) or not is_startable(event, now=time.time())


def _cut_connection(connection: AsyncConnection) -> None:
    """Shut down the socket of a connection, so that anything waiting for an answer fails at once."""
    with suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(connection.fileno())) as raw:
        raw.shutdown(socket.SHUT_RDWR)


def _has_input(connection: AsyncConnection) -> bool:
    """Return whether the server has sent something, or has closed the connection."""
    if connection.closed:
        return False
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _is_gone(error: psycopg.Error) -> bool:
    """Return whether the error means that the connection was lost or closed, or that the server is still starting."""
    return error.sqlstate is None or error.sqlstate.startswith("57P")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or ["no answer"])[0]
