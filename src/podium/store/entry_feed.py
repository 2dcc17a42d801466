"""Read the entries of all runs in the order in which they were committed, from a cursor that never skips an entry.

A cursor names the last entry that its owner has seen, as `RUN:SEQ`. SQLite has one writer at a time, so the row ids of
entries are in commit order, and entries are never deleted. A cursor does not contain a row id, because VACUUM can
change row ids; it keeps their order.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from ..values.errors import Mistake
from .sqlite.schema import open_for_reading, translate_sqlite_errors


class FeedRow(NamedTuple):
    """An entry in the feed. `position` orders the rows as long as the feed is open; `line` is the entry as JSON."""

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
    """The entries of a store, in commit order."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection = open_for_reading(path)

    def __enter__(self) -> EntryFeed:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def find_end(self) -> FeedRow | None:
        """Return the last entry of the store, or None if there is none."""
        with translate_sqlite_errors(self.path):
            found = self._connection.execute(
                "SELECT rowid, run, seq, kind, line FROM entry ORDER BY rowid DESC LIMIT 1"
            ).fetchone()
        return None if found is None else FeedRow._make(found)

    def find_position(self, cursor: str) -> int:
        """Return the position of a cursor; an empty cursor is before the first entry.

        Raise Mistake if it is unknown.
        """
        if not cursor:
            return 0
        run, _, seq = cursor.rpartition(":")
        if run and seq.isdecimal() and len(seq) < 19:
            with translate_sqlite_errors(self.path):
                found = self._connection.execute(
                    "SELECT rowid FROM entry WHERE run = ? AND seq = ?", (run, int(seq))
                ).fetchone()
            if found is not None:
                return int(found[0])
        raise unknown_cursor(cursor)

    def read_after(self, position: int, most: int) -> list[FeedRow]:
        """Return the entries after a position, at most `most` of them."""
        with translate_sqlite_errors(self.path):
            found = self._connection.execute(
                "SELECT rowid, run, seq, kind, line FROM entry WHERE rowid > ? ORDER BY rowid LIMIT ?", (position, most)
            )
            return [FeedRow._make(row) for row in found]

    def find_last_mail(self) -> int:
        """Return the number of the newest mailbox message of any run, or 0."""
        with translate_sqlite_errors(self.path):
            return int(self._connection.execute("SELECT coalesce(max(id), 0) FROM mail").fetchone()[0])


def unknown_cursor(cursor: str) -> Mistake:
    """Return the error for a cursor that names no entry of the store."""
    return Mistake(f"cursor {cursor[:60]!r} is not in this store; read the current state and follow from its cursor")
