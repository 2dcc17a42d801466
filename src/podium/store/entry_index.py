"""Index entries by agent, plan step, kind and time, and find them in one run or in all runs.

Writing an entry does not change the index. Each query first adds the entries that were written since the last
query, so runs never wait for the index. If the store cannot be written, the query uses a temporary index.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import TracebackType

import msgspec
from msgspec import Struct

from ..values.errors import StoreCorrupt, StoreFailed
from ..values.operation_path import parse_agent_name
from ..values.store_address import StoreAddress
from ..views.entry_filter import EntryFilter, find_step
from .sql_connection import SqlValue, Statement, read_transaction, write_transaction
from .store_connection import open_connection, open_for_reading, translate_errors

BATCH = 2000
"""How many entries are indexed in one transaction."""
PAGE = 200
"""How many entries each query returns when the entries of all runs are read."""
LOCK_SECONDS = 0.5
"""How long a query waits for other writers before it uses a temporary index."""

Position = tuple[float, int, int]
"""The unique position of an entry: its time, the number of its run in the index, and its sequence number."""


class EntryIndex:
    """The index of a store's entries."""

    def __init__(self, path: StoreAddress) -> None:
        self.path = path
        self._is_temporary = False
        try:
            self._connection = open_connection(path, create=False)
        except StoreCorrupt:
            raise
        except StoreFailed:
            # The store may be read-only. Entries can still be found, with a temporary index.
            self._connection = open_for_reading(path)
        self._connection.set_lock_timeout(LOCK_SECONDS)

    def __enter__(self) -> EntryIndex:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._connection.close()

    def find_lines(self, run: str, wanted: EntryFilter, *, after: int = 0) -> list[bytes]:
        """Return, in order, the lines of a run's entries that follow a sequence number and meet all criteria."""
        self._add_new_entries(run)
        criteria, values = _build_criteria(wanted)
        with translate_errors(self.path):
            found = self._connection.execute(
                f"{SELECT_LINES} WHERE indexed_run.run = ? AND indexed_entry.seq > ?{criteria}"
                " ORDER BY indexed_entry.seq",
                (run, after, *values),
            )
            return [bytes(row[-1]) for row in found]

    def iter_newest_lines(self, wanted: EntryFilter) -> Iterator[tuple[str, bytes]]:
        """Yield the run and the line of each entry in the store that meets all criteria, newest first.

        Entries that a fork shares with another run are yielded once, for the other run.
        """
        self._add_new_entries()
        last: Position | None = None
        while True:
            # Each page is a separate query, so a slow reader keeps no transaction open.
            with translate_errors(self.path):
                found = self._connection.execute(*build_newest_query(wanted, before=last)).fetchall()
            for row in found:
                yield str(row[-2]), bytes(row[-1])
            if len(found) < PAGE:
                return
            last = found[-1][:3]

    # Adding entries

    def _add_new_entries(self, run: str = "") -> None:
        """Add the entries that are not in the index yet: those of one run, or of all runs if `run` is empty."""
        try:
            self._index_runs(run)
        except StoreCorrupt:
            raise
        except StoreFailed:
            self._use_temporary_tables()
            self._index_runs(run)

    def _use_temporary_tables(self) -> None:
        """Create empty temporary tables, and keep the index in them until the connection is closed."""
        with translate_errors(self.path):
            self._connection.create_temporary_copies("indexed_run", "indexed_entry")
        self._is_temporary = True

    def _index_runs(self, run: str) -> None:
        behind = self._list_outdated_runs(run)
        while behind:
            with self._open_transaction():
                room = BATCH
                while behind and room:
                    added = self._index_entries(behind[-1], most=room)
                    if added < room:
                        behind.pop()
                    room -= added

    def _list_outdated_runs(self, run: str) -> list[str]:
        """Return the runs that have entries which are not in the index."""
        which = " AND run.id = ?" if run else ""
        with translate_errors(self.path):
            found = self._connection.execute(
                "SELECT run.id FROM run LEFT JOIN indexed_run ON indexed_run.run = run.id WHERE"
                f" (SELECT max(seq) FROM entry WHERE entry.run = run.id) > coalesce(indexed_run.seq, 0){which}",
                (run,) if run else (),
            )
            return [str(row[0]) for row in found]

    def _index_entries(self, run: str, *, most: int) -> int:
        """Add the next entries of a run to the index, and return how many were added."""
        row = self._connection.execute("SELECT id, seq, shared FROM indexed_run WHERE run = ?", (run,)).fetchone()
        number, last, shared = row or (None, 0, 0)
        new = self._connection.execute(
            "SELECT seq, kind, line FROM entry WHERE run = ? AND seq > ? ORDER BY seq LIMIT ?", (run, last, most)
        ).fetchall()
        if not new:
            return 0
        lines = [_decode_line(line) for _, _, line in new]
        if number is None:
            shared = lines[0].event.shared
        (number,) = self._connection.execute(
            "INSERT INTO indexed_run (run, seq, shared) VALUES (?, ?, ?)"
            " ON CONFLICT (run) DO UPDATE SET seq = excluded.seq RETURNING id",
            (run, new[-1][0], shared),
        ).fetchone()
        self._connection.executemany(
            "INSERT INTO indexed_entry (run, seq, at, kind, agent, step) VALUES (?, ?, ?, ?, ?, ?)",
            [
                (number, seq, line.at, kind, parse_agent_name(line.operation), find_step(line.event.step, line.scope))
                for (seq, kind, _), line in zip(new, lines, strict=True)
            ],
        )
        return len(new)

    @contextmanager
    def _open_transaction(self) -> Iterator[None]:
        # With a temporary index, the store itself is only read.
        is_temporary = self._is_temporary
        begin = read_transaction if is_temporary else partial(write_transaction, lock="entry_index")
        with translate_errors(self.path), begin(self._connection):
            yield


class _IndexedEvent(Struct):
    step: str = ""
    shared: int = 0


class _IndexedLine(Struct):
    """The parts of an entry that are in the index."""

    at: float = 0.0
    scope: str = ""
    operation: str = ""
    event: _IndexedEvent = msgspec.field(default_factory=_IndexedEvent)


_decoder = msgspec.json.Decoder(_IndexedLine)


def _decode_line(line: bytes) -> _IndexedLine:
    """Return the indexed parts of an entry. A damaged entry is indexed by its kind only."""
    try:
        return _decoder.decode(line)
    except msgspec.MsgspecError:
        return _IndexedLine()


SELECT_LINES = (
    "SELECT at, indexed_entry.run, indexed_entry.seq, entry.run, entry.line FROM indexed_entry"
    " JOIN indexed_run ON indexed_run.id = indexed_entry.run"
    " JOIN entry ON entry.run = indexed_run.run AND entry.seq = indexed_entry.seq"
)


def build_newest_query(wanted: EntryFilter, *, before: Position | None = None) -> Statement:
    """Return the query for a page of entries of all runs, newest first, before a position."""
    criteria, values = _build_criteria(wanted)
    if before is not None:
        criteria += " AND (at, indexed_entry.run, indexed_entry.seq) < (?, ?, ?)"
        values += before
    return (
        f"{SELECT_LINES} WHERE (indexed_entry.seq = 1 OR indexed_entry.seq > 1 + shared){criteria}"
        " ORDER BY at DESC, indexed_entry.run DESC, indexed_entry.seq DESC LIMIT ?",
        (*values, PAGE),
    )


def _build_criteria(wanted: EntryFilter) -> Statement:
    """Return the conditions for the entries that a filter accepts, each preceded by AND."""
    text = ""
    values: list[SqlValue] = []
    if wanted.since:
        text += " AND at >= ?"
        values.append(wanted.since)
    for column, names in (("kind", wanted.kinds), ("agent", wanted.agents), ("step", wanted.steps)):
        if names:
            text += f" AND indexed_entry.{column} IN ({','.join('?' * len(names))})"
            values += names
    if wanted.steps:
        # The index of plan steps is a partial index: SQLite uses it only if the query repeats its condition.
        text += " AND step != ''"
    return text, tuple(values)
