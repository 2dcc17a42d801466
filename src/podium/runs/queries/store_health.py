"""Check the store, and for a PostgreSQL store also its server and its hosts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from ... import __version__
from ...store.reader import StoreReader
from ...store.run_creators import list_unconfirmed_runs
from ...store.store_connection import require_postgres_packages
from ...values.errors import PodiumError
from ...values.fleet_job import are_compatible
from ...values.plain_text import format_count
from ...values.store_address import PostgresAddress, StoreAddress

if TYPE_CHECKING:
    from ...store.postgres.server_check import HostCheck, ServerCheck

SLOW_SECONDS = 0.1
"""If a round trip takes longer than this, commands and agents become noticeably slower."""
SKEW_SECONDS = 2.0
"""If two clocks differ by more than this, the times on timelines are misleading."""


class Fact(Struct, frozen=True):
    """The result of a check: `fine`, a `note`, or a `problem` that prevents Podium from working."""

    what: str
    level: Literal["fine", "note", "problem"]
    text: str


def check_store(store: StoreAddress) -> Iterator[Fact]:
    """Check whether the store can be opened and written to, and whether it has resumable runs."""
    if isinstance(store, Path) and not store.exists():
        above = next(place for place in store.absolute().parents if place.exists())
        if os.access(above, os.W_OK):
            yield Fact("store", "fine", f"{store} does not exist yet; the first run creates it")
        else:
            yield Fact("store", "problem", f"cannot create {store}: {above} is not writable; set PODIUM_HOME")
        return
    if isinstance(store, PostgresAddress):
        yield from check_postgres(store)
        return
    yield from check_runs(store, about=str(store))


def check_runs(store: StoreAddress, about: str) -> Iterator[Fact]:
    """Check whether the runs in a store can be read and written. `about` describes the store."""
    try:
        with StoreReader(store) as reader:
            runs = reader.list_runs()
    except PodiumError as error:
        yield Fact("store", "problem", str(error))
        return
    if isinstance(store, Path) and not (os.access(store, os.W_OK) and os.access(store.parent, os.W_OK)):
        yield Fact("store", "problem", f"{store} is not writable; check its permissions, or set PODIUM_HOME")
    else:
        yield Fact("store", "fine", f"{about}, {format_count(len(runs), 'run')}")
    if unconfirmed := list_unconfirmed_runs(store):
        yield Fact(
            "to confirm",
            "note",
            f"{', '.join(unconfirmed)}: a host of the fleet may have created these runs before the store recorded who "
            "creates a run, so they wait; look at each with podium show RUN, and confirm it with podium resume RUN",
        )
    waiting = [summary.id for summary in runs if summary.phase == "resumable"]
    if waiting:
        yield Fact("to resume", "note", f"{', '.join(waiting)}; continue with podium resume")


def check_postgres(store: PostgresAddress) -> Iterator[Fact]:
    """Check the server of a PostgreSQL store, the version of its tables, its runs and its hosts."""
    try:
        require_postgres_packages()
        from ...store.postgres.schema import load_migrations  # imported here because it needs optional packages
        from ...store.postgres.server_check import check_server

        found, known = check_server(store), load_migrations()[-1].number
    except PodiumError as error:
        yield Fact("store", "problem", str(error))
        return
    if found.store_version == known:
        yield from check_runs(store, about=f"{store} (PostgreSQL {found.server})")
    else:
        yield _check_version(store, found, known)
    yield _check_connection(found)
    yield _check_clock(found)
    yield from (_check_host(host) for host in found.hosts)


def _check_version(store: PostgresAddress, found: ServerCheck, known: int) -> Fact:
    """Report that the store has no tables, or that its tables are from another release."""
    place = f"{store} (PostgreSQL {found.server})"
    if found.store_version == 0:
        return Fact("store", "fine", f"{place} has no tables yet; the first run creates them")
    said = f"{place} has store version {found.store_version}, last migrated by Podium {found.release}"
    if found.store_version > known:
        wanted = f"this is Podium {__version__}, which supports store versions up to {known}"
        return Fact("store", "problem", f"{said}; {wanted}: update Podium on this machine")
    wanted = f"this is Podium {__version__}, which needs store version {known}"
    return Fact("store", "note", f"{said}; {wanted}: update Podium on all machines, then run podium store migrate")


def _check_connection(found: ServerCheck) -> Fact:
    """Report how long the server takes to answer, and whether the connection is encrypted."""
    secured = f"{found.tls}, sslmode={found.sslmode}" if found.tls else "without TLS"
    if found.is_local:
        secured += "; the connection does not leave this machine"
    said = f"the server answers in {_format_milliseconds(found.latency)}; {secured}"
    if found.latency > SLOW_SECONDS:
        return Fact(
            "connection", "note", f"{said}; every write takes at least this long, so use a server that is closer"
        )
    return Fact("connection", "fine", said)


def _check_clock(found: ServerCheck) -> Fact:
    """Report the difference between this machine's clock and the server's."""
    if abs(found.clock_offset) - found.latency / 2 <= SKEW_SECONDS:
        return Fact("clock", "fine", f"{_format_offset(found.clock_offset)} the server's")
    return Fact("clock", "note", f"{_format_offset(found.clock_offset)} the server's; {_EFFECT}")


def _check_host(host: HostCheck) -> Fact:
    """Report the state of a host, its release, and the difference between its clock and the server's."""
    what = f"host {host.name}"
    if host.seconds_ago is None:
        return Fact(what, "note", "never started; to start it, run podium host on its machine")
    said = f"Podium {host.version}, clock {_format_offset(host.clock_offset)} the server's"
    if host.state == "gone":
        return Fact(what, "fine", f"ended; {said}")
    if host.is_lost:
        return Fact(what, "note", f"lost: it has not reported for {host.seconds_ago:.0f} s; {said}")
    if not are_compatible(host.version, __version__):
        why = f"its version of Podium is not compatible with this version ({__version__})"
        how = "update Podium on the machine with the older version"
        return Fact(what, "problem", f"{host.state}; {said}; {why}; {how}")
    if abs(host.clock_offset) > SKEW_SECONDS:
        return Fact(what, "note", f"{host.state}; {said}; {_EFFECT}")
    return Fact(what, "fine", f"{host.state}; {said}")


_EFFECT = "times on timelines and in schedules are off by this much; synchronise the clocks, for example with NTP"


def _format_offset(seconds: float) -> str:
    if abs(seconds) < 0.1:
        return "agrees with"
    return f"is {abs(seconds):.1f} s {'ahead of' if seconds > 0 else 'behind'}"


def _format_milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms"
