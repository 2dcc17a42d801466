"""Read a store with synchronous queries that do not change any run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from msgspec import Struct

from ..core.journal_rows import JournalRow
from ..core.open_requests import REQUEST_KINDS, RunRequests
from ..values.errors import NoSuchRun, StoreCorrupt
from ..values.event import Entry, RunEnded, RunStarted, decode_entry
from ..values.phase import Lease, Phase
from ..values.store_address import StoreAddress
from ..views.run_phase import derive_phase
from .decision_rows import select_decision_entries
from .progress_files import find_recorded_run
from .run_leases import OWNER_COLUMNS, Owner, make_owner
from .sql_connection import ALL_ROWS
from .store_connection import open_for_reading, translate_errors


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A run as shown in lists: its owner, the event that started it, its first entry and its last entry."""

    id: str
    owner: Owner | None
    started: RunStarted
    first: Entry
    last: Entry

    @property
    def is_worker(self) -> bool:
        """Whether the run belongs to a worker. The commander starts such runs."""
        return self.started.errand is not None

    @property
    def lease(self) -> Lease:
        """Whether a process works on the run."""
        if self.owner is None:
            return "none"
        return "held" if self.owner.is_alive else "lost"

    @property
    def phase(self) -> Phase:
        """Where the run stands."""
        return derive_phase(self.last.event, self.lease, is_worker=self.is_worker)

    @property
    def is_over(self) -> bool:
        """Whether the run has ended. A run that has ended does not change again."""
        return isinstance(self.last.event, RunEnded)


class DamagedRun(Struct, frozen=True):
    """A run whose first or last entry cannot be read, and why."""

    id: str
    problem: str


class RunList(NamedTuple):
    """The readable runs and the damaged runs of a store, each newest first."""

    readable: list[RunSummary]
    damaged: list[DamagedRun]


class StoreReader:
    """Read-only queries on a store."""

    def __init__(self, path: StoreAddress) -> None:
        self.path = path
        self._connection = open_for_reading(path)

    def __enter__(self) -> StoreReader:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def read_rows(self, run: str, after: int = 0, most: int = ALL_ROWS) -> list[JournalRow]:
        """Return the rows of a run's timeline after a sequence number, in order.

        `most` limits their number.
        """
        with translate_errors(self.path):
            found = self._connection.execute(
                "SELECT run, seq, epoch, kind, key, line, hash FROM entry"
                " WHERE run = ? AND seq > ? ORDER BY seq LIMIT ?",
                (run, after, most),
            )
            return [JournalRow._make(row) for row in found]

    def read_lines(
        self, run: str, after: int = 0, most: int = ALL_ROWS, *, kinds: Sequence[str] = ()
    ) -> list[tuple[str, bytes]]:
        """Return the kinds and the lines of `read_rows`, which is faster, only of these kinds if any are given."""
        chosen = f" AND kind IN ({','.join('?' * len(kinds))})" if kinds else ""
        with translate_errors(self.path):
            return self._connection.execute(
                f"SELECT kind, line FROM entry WHERE run = ? AND seq > ?{chosen} ORDER BY seq LIMIT ?",
                (run, after, *kinds, most),
            ).fetchall()

    def read_entries(self, run: str, after: int = 0, most: int = ALL_ROWS, *, kinds: Sequence[str] = ()) -> list[Entry]:
        """Return the entries of a run's timeline after a sequence number, in order, as `read_lines` selects them."""
        return [decode_entry(line, run=run) for _, line in self.read_lines(run, after, most, kinds=kinds)]

    def read_requests(self, run: str, *, after: int = 0) -> RunRequests:
        """Return the requests and answers in a run's timeline after a sequence number."""
        requests = RunRequests()
        for entry in self.read_entries(run, after, kinds=REQUEST_KINDS):
            requests.apply(entry)
        return requests

    def read_decision_entries(self) -> list[Entry]:
        """Return the entries for proposals, closed votes and outcomes of decisions, oldest first."""
        with translate_errors(self.path):
            return select_decision_entries(self._connection)

    def find_last_entry(self, run: str, kind: str, *, containing: str) -> int | None:
        """Return the sequence number of a run's last entry that is of this kind and contains this string, or None."""
        with translate_errors(self.path):
            found = self._connection.execute(
                "SELECT seq FROM entry WHERE run = ? AND kind = ? AND instr(line, ?) > 0 ORDER BY seq DESC LIMIT 1",
                (run, kind, containing.encode()),
            ).fetchone()
        return None if found is None else int(found[0])

    def find_entries(self, kinds: Sequence[str], *, containing: str) -> list[Entry]:
        """Return the entries of these kinds, in all runs, that contain this string. This reads the whole store."""
        with translate_errors(self.path):
            found = self._connection.execute(
                f"SELECT line FROM entry WHERE kind IN ({','.join('?' * len(kinds))}) AND instr(line, ?) > 0",
                (*kinds, containing.encode()),
            )
            return [decode_entry(line) for (line,) in found]

    def has_message(self, run: str, ref: str) -> bool:
        """Return whether a run's mailbox has a message with this `ref`, taken or not."""
        with translate_errors(self.path):
            found = self._connection.execute("SELECT 1 FROM mail WHERE run = ? AND ref = ?", (run, ref))
            return found.fetchone() is not None

    def is_message_taken(self, run: str, ref: str) -> bool:
        """Return whether a run has a message with this `ref` that its owner has written to the timeline."""
        with translate_errors(self.path):
            found = self._connection.execute(
                "SELECT 1 FROM mail WHERE run = ? AND ref = ? AND taken IS NOT NULL", (run, ref)
            )
            return found.fetchone() is not None

    def read_mailbox_refs(self, run: str) -> set[str]:
        """Return the `ref` of every message in a run's mailbox, taken or not."""
        with translate_errors(self.path):
            return {str(row[0]) for row in self._connection.execute("SELECT ref FROM mail WHERE run = ?", (run,))}

    def read_summary(self, run: str) -> RunSummary:
        """Return one run's summary. Raise NoSuchRun if there is no such run, and StoreCorrupt if it cannot be read."""
        for found in self._query_summaries("WHERE run.id = ?", (run,)):
            return _require_readable(found)
        raise NoSuchRun(f"run {run!r} not found; run podium ps to list the runs")

    def list_runs(self) -> list[RunSummary]:
        """Return a summary of every run, newest first. Raise StoreCorrupt if one of them cannot be read."""
        return list(map(_require_readable, self._query_summaries("ORDER BY run.created DESC, run.id", ())))

    def read_run_list(self) -> RunList:
        """Return the summaries of the runs that can be read, and the runs that cannot be read."""
        runs = list(self._query_summaries("ORDER BY run.created DESC, run.id", ()))
        readable = [run for run in runs if isinstance(run, RunSummary)]
        return RunList(readable, [run for run in runs if isinstance(run, DamagedRun)])

    def _query_summaries(self, which: str, values: tuple[str, ...]) -> Iterator[RunSummary | DamagedRun]:
        with translate_errors(self.path):
            found = self._connection.execute(
                f"SELECT run.id, {OWNER_COLUMNS},"
                " (SELECT line FROM entry WHERE entry.run = run.id ORDER BY seq LIMIT 1),"
                " (SELECT line FROM entry WHERE entry.run = run.id ORDER BY seq DESC LIMIT 1)"
                f" FROM run LEFT JOIN owner ON owner.id = run.owner {which}",
                values,
            ).fetchall()
        for id, *owner_values, first, last in found:
            if first is None:
                continue  # a host of a fleet can create a run without entries
            owner = make_owner(*owner_values)
            try:
                first_entry, last_entry = decode_entry(first, run=id), decode_entry(last, run=id)
                started = first_entry.started
            except StoreCorrupt as error:
                yield DamagedRun(id, str(error))
            else:
                yield RunSummary(id=id, owner=owner, started=started, first=first_entry, last=last_entry)

    def read_artifact(self, digest: str) -> bytes | None:
        """Return the content of an artifact, or None if it is not in the store."""
        with translate_errors(self.path):
            found = self._connection.execute("SELECT data FROM artifact WHERE digest = ?", (digest,)).fetchone()
        return None if found is None else bytes(found[0])

    def list_run_ids(self) -> list[str]:
        """Return the ids of all runs, newest first."""
        with translate_errors(self.path):
            return [str(row[0]) for row in self._connection.execute("SELECT id FROM run ORDER BY created DESC, id")]

    def has_run(self, id: str) -> bool:
        """Return whether the store has a run with this id."""
        with translate_errors(self.path):
            return self._connection.execute("SELECT 1 FROM run WHERE id = ?", (id,)).fetchone() is not None

    def find_run(self, prefix: str) -> str:
        """Return the run id that equals `prefix`, or the only run id that starts with it.

        Raise NoSuchRun if there is none or more than one, and StoreCorrupt if the store has lost the run.
        """
        with translate_errors(self.path):
            found = [
                str(row[0])
                for row in self._connection.execute(
                    "SELECT id FROM run WHERE substr(id, 1, ?) = ? ORDER BY created DESC LIMIT 9", (len(prefix), prefix)
                )
            ]
        if prefix in found:
            return prefix
        # Another machine may have removed the run from a PostgreSQL store.
        is_local = isinstance(self.path, Path)
        if prefix and is_local and not found and (lost := find_recorded_run(self.path, prefix)) is not None:
            raise StoreCorrupt(
                f"run {lost} was written to {self.path}, but is missing now: the file was damaged, or replaced by an "
                "older copy. Nothing was changed; restore the store from a backup"
            )
        if not prefix or not found:
            raise NoSuchRun(f"run {prefix!r} not found; run podium ps to list the runs")
        if len(found) > 1:
            raise NoSuchRun(f"{prefix!r} matches several runs: {', '.join(found)}; give more characters of the id")
        return found[0]


def _require_readable(run: RunSummary | DamagedRun) -> RunSummary:
    if isinstance(run, DamagedRun):
        raise StoreCorrupt(run.problem)
    return run
