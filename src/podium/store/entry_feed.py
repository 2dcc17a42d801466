"""Read the entries of all runs in one order. A reader that continues from its cursor never misses an entry.

A cursor names the last entry that its owner has seen, as `RUN:SEQ`. SQLite has one writer at a time, so the row ids of
entries are in commit order. Entries are deleted only with their run. A cursor does not contain a row id, because VACUUM
can change row ids, although it keeps their order. PostgreSQL has many writers at a time: entries are in the order of
their transactions, and an entry is in the feed once every earlier transaction has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, NamedTuple

from ..values.errors import Mistake
from ..values.store_address import StoreAddress
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
        self._order = self._connection.entry_order

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
                f"SELECT {', '.join(self._order)}, run, seq, kind, line FROM entry"
                f" WHERE {self._connection.settled_entries}"
                f" ORDER BY {', '.join(f'{column} DESC' for column in self._order)} LIMIT 1"
            ).fetchone()
        return None if found is None else self._make_row(found)

    def find_position(self, cursor: str) -> int:
        """Return the position of a cursor; an empty cursor is before the first entry.

        Raise Mistake if it is unknown.
        """
        if not cursor:
            return 0
        run, _, seq = cursor.rpartition(":")
        if run and seq.isdecimal() and len(seq) < 19:
            with translate_errors(self.path):
                found = self._connection.execute(
                    f"SELECT {', '.join(self._order)} FROM entry WHERE run = ? AND seq = ?", (run, int(seq))
                ).fetchone()
            if found is not None:
                return pack_position(found)
        raise unknown_cursor(cursor)

    def read_after(self, position: int, most: int) -> list[FeedRow]:
        """Return the entries after a position, at most `most` of them."""
        with translate_errors(self.path):
            columns, marks = ", ".join(self._order), ", ".join("?" * len(self._order))
            found = self._connection.execute(
                f"SELECT {columns}, run, seq, kind, line FROM entry WHERE ({columns}) > ({marks})"
                f" AND {self._connection.settled_entries} ORDER BY {columns} LIMIT ?",
                (*unpack_position(position, len(self._order)), most),
            )
            return [self._make_row(row) for row in found]

    def read_before(self, position: int, most: int, kinds: Sequence[str]) -> list[FeedRow]:
        """Return the entries of these kinds before a position, the newest first, at most `most` of them."""
        with translate_errors(self.path):
            columns, marks = ", ".join(self._order), ", ".join("?" * len(self._order))
            found = self._connection.execute(
                f"SELECT {columns}, run, seq, kind, line FROM entry WHERE ({columns}) < ({marks})"
                f" AND kind IN ({', '.join('?' * len(kinds))}) AND {self._connection.settled_entries}"
                f" ORDER BY {', '.join(f'{column} DESC' for column in self._order)} LIMIT ?",
                (*unpack_position(position, len(self._order)), *kinds, most),
            )
            return [self._make_row(row) for row in found]

    def _make_row(self, found: Sequence[Any]) -> FeedRow:
        size = len(self._order)
        return FeedRow(pack_position(found[:size]), *found[size:])

    def find_last_mail(self) -> int:
        """Return the number of the newest mailbox message of any run, or 0."""
        with translate_errors(self.path):
            return int(self._connection.execute("SELECT coalesce(max(id), 0) FROM mail").fetchone()[0])


def pack_position(values: Sequence[int]) -> int:
    """Pack these values into one number that sorts in the same order. Each value must be below 2**64."""
    position = 0
    for value in values:
        position = position << 64 | value
    return position


def unpack_position(position: int, size: int) -> list[int]:
    """Return the `size` values that `pack_position` packed into a number."""
    return [position >> 64 * place & 2**64 - 1 for place in reversed(range(size))]


def unknown_cursor(cursor: str) -> Mistake:
    """Return the error for a cursor that names no entry of the store."""
    return Mistake(f"cursor {cursor[:60]!r} is not in this store; read the current state and follow from its cursor")
