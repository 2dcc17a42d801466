"""Read the entries of all runs in a single order. A reader that continues from its cursor never misses an entry.

A cursor names the last entry that its owner has seen, as `RUN:SEQ`. It does not contain a row id, because VACUUM can
change row ids, although it keeps their order.

SQLite has one writer at a time, so the row ids of entries are in commit order. SQLite may reuse the row ids of entries
that were deleted together with their run. Therefore, the position of an entry in the feed consists of the id of the
last deletion before the entry was written, and the entry's row id.

PostgreSQL has many writers at a time. Entries are in the order of their transactions, and an entry appears in the feed
once every earlier transaction has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple

from ..values.errors import Mistake
from ..values.store_address import StoreAddress
from .sql_connection import SqlRow
from .store_connection import open_for_reading, translate_errors


class FeedRow(NamedTuple):
    """An entry in the feed. `position` orders the rows while the feed is open; `line` is the entry as JSON."""

    position: int
    run: str
    seq: int
    kind: str
    line: bytes

    @property
    def cursor(self) -> str:
        """The cursor of a reader that has seen this entry and everything before it."""
        return f"{self.run}:{self.seq}"


class EntryFeed:
    """The entries of all runs in a store, in the order of the feed."""

    def __init__(self, path: StoreAddress) -> None:
        self.path = path
        self._connection = open_for_reading(path)
        self._columns = f"{', '.join(self._connection.entry_position)}, run, seq, kind, line"
        order = self._connection.entry_order
        self._oldest_first = ", ".join(order)
        self._newest_first = ", ".join(f"{column} DESC" for column in order)

    def __enter__(self) -> EntryFeed:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def find_end(self) -> FeedRow | None:
        """Return the last entry in the feed, or None if there is none."""
        with translate_errors(self.path):
            found = self._connection.execute(
                f"SELECT {self._columns} FROM entry WHERE {self._connection.settled_entries}"
                f" ORDER BY {self._newest_first} LIMIT 1"
            ).fetchone()
        return None if found is None else _make_row(found)

    def find_position(self, cursor: str) -> int:
        """Return the position of a cursor; an empty cursor is before the first entry.

        Raise Mistake if the cursor is unknown.
        """
        if not cursor:
            return 0
        run, _, seq = cursor.rpartition(":")
        if run and seq.isdecimal() and len(seq) < 19:
            with translate_errors(self.path):
                found = self._connection.execute(
                    f"SELECT {self._columns} FROM entry WHERE run = ? AND seq = ?", (run, int(seq))
                ).fetchone()
            if found is not None:
                return _make_row(found).position
        raise unknown_cursor(cursor)

    def read_after(self, position: int, most: int) -> list[FeedRow]:
        """Return up to `most` entries after a position."""
        with translate_errors(self.path):
            found = self._connection.execute(
                f"SELECT {self._columns} FROM entry WHERE {self._connection.entries_after}"
                f" AND {self._connection.settled_entries} ORDER BY {self._oldest_first} LIMIT ?",
                (*_unpack_position(position), most),
            )
            return [_make_row(row) for row in found]

    def read_before(self, position: int, most: int, kinds: Sequence[str]) -> list[FeedRow]:
        """Return up to `most` entries of these kinds before a position, newest first."""
        with translate_errors(self.path):
            found = self._connection.execute(
                f"SELECT {self._columns} FROM entry WHERE {self._connection.entries_before}"
                f" AND kind IN ({', '.join('?' * len(kinds))}) AND {self._connection.settled_entries}"
                f" ORDER BY {self._newest_first} LIMIT ?",
                (*_unpack_position(position), *kinds, most),
            )
            return [_make_row(row) for row in found]

    def find_last_mail(self) -> int:
        """Return the number of the newest mailbox message of any run, or 0."""
        with translate_errors(self.path):
            return int(self._connection.execute("SELECT coalesce(max(id), 0) FROM mail").fetchone()[0])


def _make_row(found: SqlRow) -> FeedRow:
    """Make a row from the selected columns. The two values of its position are packed into one number."""
    return FeedRow(found[0] << 64 | found[1], *found[2:])


def _unpack_position(position: int) -> tuple[int, int]:
    """Return the two values of a position."""
    return position >> 64, position & 2**64 - 1


def unknown_cursor(cursor: str) -> Mistake:
    """Return the error for a cursor that names no entry in the store."""
    return Mistake(f"cursor {cursor[:60]!r} is not in this store; read the current state and follow from its cursor")
