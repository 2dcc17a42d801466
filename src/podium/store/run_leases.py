"""Record which process owns each run, and let another process take over a run whose owner is gone."""

from __future__ import annotations

import os
import secrets
import socket
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from ..system.identity import read_machine_boot
from ..values.errors import NoSuchRun, RunHeld
from .sql_connection import SqlConnection, Statement, write_transaction
from .write_statements import DELETE_OLD_OWNERS, RENEW_OWNER, TAKE_OVER_RUN

LEASE_SECONDS = 30.0
MOST_LEASE_SECONDS = 600.0
"""The longest lease that a PostgreSQL store gives to a host."""

OWNER_COLUMNS = "owner.id, owner.host, owner.boot, owner.pid, owner.born, owner.until - clock_seconds()"
"""The columns for `make_owner`. The last is the time left, not the time of expiry, because clocks can differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerId:
    """The id of a process that owns runs, and how long its leases last without renewal.

    A host and its workers share one id, because the host supervises its workers and they exit when it exits.
    """

    id: str = field(default_factory=lambda: secrets.token_hex(8))
    lease_seconds: float = LEASE_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """A process that owns runs; its lease expires at `until` unless it is renewed."""

    id: str
    host: str
    boot: str
    pid: int
    process_start: str
    until: float

    @property
    def is_alive(self) -> bool:
        """Whether the process still owns its runs. If it ran on this machine, its exit is detected immediately."""
        is_here = (self.host, self.boot) == (socket.gethostname(), _read_boot_id())
        return self.until > time.time() and (not is_here or read_process_start(self.pid) == self.process_start)


def register_owner(connection: SqlConnection, owner: OwnerId) -> None:
    """Register this process as an owner, and delete owners whose leases expired long ago."""
    connection.execute(DELETE_OLD_OWNERS, (10 * LEASE_SECONDS,))
    connection.execute(*build_lease_renewal(owner))


def build_lease_renewal(owner: OwnerId) -> Statement:
    """Return the statement that starts or extends an owner's lease, even if the owner was deleted in the meantime."""
    process = (socket.gethostname(), _read_boot_id(), os.getpid(), read_process_start(os.getpid()))
    return (RENEW_OWNER, (owner.id, *process, owner.lease_seconds))


def _find_owner(connection: SqlConnection, run: str) -> Owner | None:
    """Return a run's owner, alive or not, or None if the run has none. Raise NoSuchRun if there is no such run."""
    found = connection.execute(
        f"SELECT {OWNER_COLUMNS} FROM run LEFT JOIN owner ON owner.id = run.owner WHERE run.id = ?",
        (run,),
    ).fetchone()
    if found is None:
        raise NoSuchRun(f"run {run!r} not found")
    return make_owner(*found)


def make_owner(id: str | None, host: str, boot: str, pid: int, process_start: str, seconds_left: float) -> Owner | None:
    """Return the owner read from these columns, or None if they are empty because the run has no owner."""
    if id is None:
        return None
    until = time.time() + seconds_left
    return Owner(id=id, host=host, boot=boot, pid=pid, process_start=process_start, until=until)


def take_over_run(connection: SqlConnection, run: str, id: str) -> int:
    """Take over a run and return its new epoch.

    Raise NoSuchRun if there is no such run, and RunHeld if another live process owns the run.
    """
    with write_transaction(connection, f"run {run}"):
        owner = _find_owner(connection, run)
        if owner is not None and owner.id != id and owner.is_alive:
            raise RunHeld(run, host=owner.host, pid=owner.pid)
        found = connection.execute(TAKE_OVER_RUN, (id, run)).fetchone()
    return int(found[0])


@cache
def _read_boot_id() -> str:
    """Return an id for this boot and PID namespace. Process ids have no meaning in another boot or namespace."""
    try:
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}" if (boot := read_machine_boot()) else ""
    except OSError:
        return ""


def read_process_start(pid: int) -> str:
    """Return a process's start time as reported by the system, or an empty string if the process has exited.

    On a system without /proc, return `alive` instead of a start time. Process ids are reused, so an id alone does not
    identify a process.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return _probe_without_proc(pid)
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[19]


def _probe_without_proc(pid: int) -> str:
    if Path("/proc/self/stat").exists():
        return ""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "alive"
