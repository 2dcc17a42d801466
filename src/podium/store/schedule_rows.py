"""Store schedules: which request goes to which agent, and when.

`next_at` is the next time that a schedule is due. It is advanced only after the run for that time is created, and
the id of that run is derived from the schedule and the time. So if a process is killed in between, the next process
tries to start the same run again, and finds that it already exists.

A host proves with a secret that it may start the scheduled runs of its machine. The secret is in a file in the Podium
home. A PostgreSQL store contains only a digest of the secret. So a host on
another machine can read the store, but cannot record that one of these scheduled runs was started or missed.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from ..system.file_lock import hold_file_lock
from ..system.identity import read_host_id
from ..system.whole_file import replace_file
from ..values.errors import Mistake, StoreFailed
from ..values.store_address import PostgresAddress, StoreAddress
from .sql_connection import SqlValue
from .store_connection import open_connection, open_for_reading, translate_errors

FILE = "schedule-key"


COLUMNS = (
    "id, cron, zone, agent, request, root, host, created, is_paused, next_at, last_at, last_run, missed, missed_at,"
    " error, author"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule. Times are in seconds since the epoch; a time that is not known yet is 0.

    `root` is the folder that its runs work in, and `host` is the id of the machine that starts them. `missed` is the
    number of runs that were due while no process was running to start them. `error` says why the last run could not be
    started. `author` is the name of the person who added the schedule; it is not known for the oldest ones.
    """

    id: str
    cron: str
    zone: str
    agent: str
    request: str
    root: str
    host: str
    created: float
    is_paused: bool = False
    next_at: float
    last_at: float = 0.0
    last_run: str = ""
    missed: int = 0
    missed_at: float = 0.0
    error: str = ""
    author: str = ""

    @property
    def next_run(self) -> str:
        """The id of the run that is due at `next_at`."""
        return sha256(f"schedule {self.id} {self.created} {self.next_at:.0f}".encode()).hexdigest()[:12]


class Schedules:
    """The schedules in a store. Changes are synced to disk at once, because they are not recorded on any timeline."""

    def __init__(self, store: StoreAddress, *, host_secret: str = "") -> None:
        """Open the schedules in a store.

        A host cannot write to the table of schedules. It calls a database function instead, which checks
        `host_secret`, the secret of the host's machine.
        """
        self._store = store
        self._host_secret = host_secret

    def list_all(self) -> list[Schedule]:
        """Return all schedules, oldest first."""
        return self._select("")

    def list_active(self) -> list[Schedule]:
        """Return the schedules that are not paused, oldest first."""
        return self._select("WHERE is_paused = 0")

    def find(self, prefix: str) -> Schedule:
        """Return the schedule whose id starts with `prefix`. Raise Mistake unless exactly one matches."""
        known = self.list_all()
        found = [one for one in known if one.id == prefix] or [one for one in known if one.id.startswith(prefix)]
        if len(found) == 1:
            return found[0]
        ids = ", ".join(one.id for one in (found or known)) or "none"
        what = "matches several schedules" if found else "not found"
        raise Mistake(f"schedule {prefix!r} {what}; available: {ids}")

    def add(self, schedule: Schedule) -> None:
        """Store a new schedule."""
        names = COLUMNS.split(", ")
        values = [int(value) if isinstance(value := getattr(schedule, name), bool) else value for name in names]
        self._execute(f"INSERT INTO schedule ({COLUMNS}) VALUES ({', '.join('?' * len(names))})", values, create=True)

    def remove(self, id: str) -> None:
        """Remove a schedule. Its runs are kept."""
        self._execute("DELETE FROM schedule WHERE id = ?", (id,))

    def set_paused(self, id: str, is_paused: bool, *, next_at: float) -> None:
        """Pause or resume a schedule, and set its next due time to `next_at`."""
        self._execute("UPDATE schedule SET is_paused = ?, next_at = ? WHERE id = ?", (int(is_paused), next_at, id))

    def record_start(self, schedule: Schedule, *, next_at: float, error: str = "") -> None:
        """Record that the run due at `schedule.next_at` was started, and set the next due time to `next_at`.

        If the run could not be started, `error` says why.
        """
        run = schedule.last_run if error else schedule.next_run
        if self._host_secret:
            changed = replace(schedule, next_at=next_at, last_at=schedule.next_at, last_run=run, error=error)
            self._record_as_host(schedule, changed)
            return
        # A person who paused and resumed the schedule in the meantime has already advanced the due time.
        self._execute(
            "UPDATE schedule SET next_at = CASE WHEN next_at = ? THEN ? ELSE next_at END, last_at = ?, last_run = ?,"
            " error = ? WHERE id = ?",
            (schedule.next_at, next_at, schedule.next_at, run, error, schedule.id),
        )

    def record_missed(self, schedule: Schedule, count: int, *, last: float, next_at: float) -> None:
        """Record that no process was running at the last `count` due times, and set the next due time to `next_at`.

        `last` is the latest of the missed due times.
        """
        if self._host_secret:
            total = schedule.missed + count
            self._record_as_host(schedule, replace(schedule, next_at=next_at, missed=total, missed_at=last))
            return
        self._execute(
            "UPDATE schedule SET next_at = ?, missed = missed + ?, missed_at = ? WHERE id = ? AND next_at = ?",
            (next_at, count, last, schedule.id, schedule.next_at),
        )

    def _record_as_host(self, before: Schedule, after: Schedule) -> None:
        """Record a change by calling the database function for hosts. Raise StoreFailed if the function refuses it."""
        values = (before.id, self._host_secret, before.next_at, after.next_at, after.last_at, after.last_run)
        with translate_errors(self._store), closing(open_connection(self._store, create=False)) as connection:
            [(refusal,)] = connection.execute(
                "SELECT record_schedule_as_host(?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*values, after.error, after.missed, after.missed_at),
            )
        if refusal is not None:
            raise StoreFailed(
                f"the store refused this host's update of schedule {before.id} ({refusal}); to let the hosts on this "
                "machine start this machine's schedules, run podium schedule start here with your own database login"
            )

    def _execute(self, sql: str, values: Sequence[SqlValue], *, create: bool = False) -> None:
        with translate_errors(self._store), closing(open_connection(self._store, create=create)) as connection:
            connection.set_durable(True)
            connection.execute(sql, values)

    def _select(self, which: str) -> list[Schedule]:
        if not self._store.exists():
            return []
        with translate_errors(self._store), closing(open_for_reading(self._store)) as connection:
            rows = connection.execute(f"SELECT {COLUMNS} FROM schedule {which} ORDER BY created, id")
            found = [dict(zip(COLUMNS.split(", "), row, strict=True)) for row in rows]
        return [Schedule(**{**one, "is_paused": bool(one["is_paused"])}) for one in found]


def read_schedule_secret(home: Path) -> str:
    """Return the secret of this machine, or an empty string if no schedule was added here."""
    try:
        return (home / FILE).read_text("ascii").strip()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise Mistake(
            f"{home / FILE} cannot be read ({error}); delete it, and create it again with podium schedule start"
        ) from error


def publish_schedule_key(store: StoreAddress, home: Path) -> None:
    """Let the hosts on this machine start the runs of this machine's schedules. Do nothing for a SQLite store."""
    if not isinstance(store, PostgresAddress):
        return
    with hold_file_lock(home / f".{FILE}.lock", protects=home / FILE):
        if not (secret := read_schedule_secret(home)):
            secret = secrets.token_hex(32)
            replace_file(home / FILE, f"{secret}\n".encode())
    digest = sha256(secret.encode()).hexdigest()
    with translate_errors(store), closing(open_connection(store, create=True)) as connection:
        connection.execute(
            "INSERT INTO schedule_key (machine, digest) VALUES (?, ?)"
            " ON CONFLICT (machine) DO UPDATE SET digest = excluded.digest",
            (read_host_id(home), digest),
        )


def has_host_on_this_machine(store: StoreAddress) -> bool:
    """Return whether a host of the store's fleet runs on this machine, as far as the store knows."""
    if not isinstance(store, PostgresAddress):
        return False
    with translate_errors(store), closing(open_for_reading(store)) as connection:
        found = connection.execute(
            "SELECT 1 FROM owner JOIN host ON host.login = owner.login"
            " WHERE owner.host = ? AND owner.until > clock_seconds() LIMIT 1",
            (socket.gethostname(),),
        )
        return found.fetchone() is not None
