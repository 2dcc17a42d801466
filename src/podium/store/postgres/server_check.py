"""Measure the connection to a PostgreSQL store, and read what its hosts last reported. Nothing is changed.

A standby that is promoted, and a backup that is restored, can lack the last entries of a run. Each run therefore has
the identity of the server that it was last written to.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from statistics import median

import psycopg

from ...core.journal_rows import JournalRow
from ...values.errors import StoreCorrupt
from ...values.event import KINDS, RunEnded
from ...values.fleet_job import LOST_SECONDS
from ...values.store_address import PostgresAddress
from ..sql_connection import SqlRow
from .connection import PostgresConnection, connect_to_database, translate_postgres_errors
from .login import is_connection_local, parse_login
from .schema import SCHEMA, read_schema_version

_ACCEPTED = "accepted:"
_CHANGED = (
    "the PostgreSQL server of the store has changed since the run's last entry, because a standby was promoted or a "
    "backup was restored"
)


ROUND_TRIPS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCheck:
    """A host's last report: its release, its state, and how many seconds its clock is ahead of the server's."""

    name: str
    version: str
    state: str
    seconds_ago: float | None
    clock_offset: float

    @property
    def is_alive(self) -> bool:
        """Whether the host recently reported that it accepts jobs or is finishing its last ones."""
        return self.state in ("active", "draining") and not self.is_lost

    @property
    def is_lost(self) -> bool:
        """Whether the host stopped reporting without announcing that it was ending."""
        return self.state != "gone" and (self.seconds_ago is None or self.seconds_ago >= LOST_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCheck:
    """The state of a PostgreSQL server and of the store in its database.

    `store_version` is 0 if the database has no store. `release` is the version of Podium that last migrated the store.
    `clock_offset` is how many seconds this machine's clock is ahead of the server's, accurate to half of `latency`.
    `tls` is the version of TLS, or empty if the connection does not use it.
    """

    server: str
    latency: float
    clock_offset: float
    tls: str
    sslmode: str
    is_local: bool
    store_version: int
    release: str
    hosts: tuple[HostCheck, ...]


def check_server(store: PostgresAddress) -> ServerCheck:
    """Connect to the server of a store and check it.

    Raise StoreFailed if it cannot be reached, and Mistake if the address is invalid or not safe.
    """
    login = parse_login(store)
    with translate_postgres_errors(store), closing(connect_to_database(store)) as connection:
        version = read_schema_version(connection)
        latency, clock_offset = _measure(connection)
        [tls] = _read_row(connection, "SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid()") or (None,)
        return ServerCheck(
            server=(connection.info.parameter_status("server_version") or "").partition(" ")[0],
            latency=latency,
            clock_offset=clock_offset,
            tls=str(tls or ""),
            sslmode=login.get("sslmode", ""),
            is_local=is_connection_local(login),
            store_version=version,
            release=_read_release(connection) if version else "",
            hosts=_read_hosts(connection) if _has_hosts(connection) else (),
        )


def _measure(connection: psycopg.Connection) -> tuple[float, float]:
    """Return the round-trip time, and how far this machine's clock is ahead of the server's, both in seconds."""
    trips = []
    for _ in range(ROUND_TRIPS):
        sent, began = time.time(), time.monotonic()
        [there] = _read_row(connection, "SELECT extract(epoch FROM clock_timestamp())::float8") or (sent,)
        took = time.monotonic() - began
        trips.append((took, sent + took / 2 - float(there)))
    # The shortest round trip gives the most accurate clock offset.
    return median(took for took, _ in trips), min(trips)[1]


def _read_release(connection: psycopg.Connection) -> str:
    query = f"SELECT release FROM {SCHEMA}.schema_version ORDER BY number DESC LIMIT 1"
    return str((_read_row(connection, query) or ("",))[0])


def _has_hosts(connection: psycopg.Connection) -> bool:
    return (_read_row(connection, f"SELECT to_regclass('{SCHEMA}.host') IS NOT NULL") or (False,))[0] is True


def _read_hosts(connection: psycopg.Connection) -> tuple[HostCheck, ...]:
    rows = connection.execute(
        "SELECT name, version, state, extract(epoch FROM clock_timestamp() - seen)::float8, clock_offset"
        f" FROM {SCHEMA}.host ORDER BY name"
    ).fetchall()
    return tuple(
        HostCheck(name=name, version=version, state=state, seconds_ago=ago, clock_offset=offset)
        for name, version, state, ago, offset in rows
    )


def _read_row(connection: psycopg.Connection, query: str) -> SqlRow | None:
    return connection.execute(query.encode()).fetchone()


def require_same_server(store: PostgresAddress, run: str, rows: Sequence[JournalRow]) -> str:
    """Raise StoreCorrupt if a run that has not ended was last written to another server.

    Otherwise, return a notice if a person has accepted the change, or else an empty string.
    """
    written, current = _read_identities(store, run)
    if written == _ACCEPTED + current:
        return f"this run was resumed although {_CHANGED}, and entries may have been lost"
    if written in ("", current) or _has_ended(rows):
        return ""
    raise StoreCorrupt(
        f"run {run} may have lost entries: {_CHANGED}; it was not resumed, because it would repeat the work in them. "
        f"Check the run's last actions and continue with: podium resume {run} --accept-loss"
    )


def accept_server(store: PostgresAddress, run: str) -> None:
    """Record that a person has accepted that the current server may lack entries of a run."""
    with translate_postgres_errors(store), closing(PostgresConnection(store)) as connection:
        connection.execute(
            "UPDATE run SET server = ? || read_server_identity() WHERE id = ? AND server <> read_server_identity()",
            (_ACCEPTED, run),
        )


def find_server_change(store: PostgresAddress, run: str, rows: Sequence[JournalRow]) -> str:
    """Return a notice if a run that has not ended was last written to another server, or else an empty string."""
    written, current = _read_identities(store, run)
    if written.removeprefix(_ACCEPTED) in ("", current) or _has_ended(rows):
        return ""
    return f"{_CHANGED}; entries lost at the end cannot be detected"


def _read_identities(store: PostgresAddress, run: str) -> tuple[str, str]:
    """Return the identity of the server that a run was last written to, and that of the current server."""
    with translate_postgres_errors(store), closing(PostgresConnection(store)) as connection:
        found = connection.execute("SELECT server, read_server_identity() FROM run WHERE id = ?", (run,)).fetchone()
    return ("", "") if found is None else found


def _has_ended(rows: Sequence[JournalRow]) -> bool:
    return bool(rows) and rows[-1].kind == KINDS[RunEnded]
