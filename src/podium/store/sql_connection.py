"""The interface of a connection to a store, which is the same for each kind of database.

Queries are written once, in the SQL that SQLite and PostgreSQL share, with `?` as the placeholder for values. Both
databases have the functions `instr` for binary values and `clock_seconds`, which returns the current time for leases.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

SqlValue = str | int | float | bytes | list[str] | None
"""A value in a query. A list is an array of PostgreSQL."""
SqlRow = tuple[Any, ...]
"""A row as a database or a store file returns it, before its values are checked."""
Statement = tuple[str, tuple[SqlValue, ...]]
"""A query and its values."""

LOCK_SECONDS = 30.0
"""The default time that a statement waits for other processes before it fails."""

ALL_ROWS = 2**62
"""The LIMIT value for a query that returns all rows."""


class SqlRows(Protocol):
    """The result of a query. `rowcount` is the number of rows that an INSERT, UPDATE or DELETE has changed."""

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[SqlRow]: ...

    def __iter__(self) -> Iterator[SqlRow]: ...


class SqlConnection(Protocol):
    """A connection to the database of a store. Outside a transaction, each statement is committed immediately."""

    @property
    def entry_order(self) -> tuple[str, ...]:
        """The columns that order the entries of all runs: by commit in SQLite, by transaction in PostgreSQL."""
        ...

    @property
    def entry_position(self) -> tuple[str, str]:
        """The expressions for an entry's position. No other entry ever has this position, not even after a removal."""
        ...

    @property
    def entries_after(self) -> str:
        """The SQL condition for entries after a position, with a placeholder for each of the position's two values."""
        ...

    @property
    def entries_before(self) -> str:
        """The SQL condition for entries before a position, with a placeholder for each of the position's two values."""
        ...

    @property
    def settled_entries(self) -> str:
        """The SQL condition for settled entries: no entry that is committed later can precede them in `entry_order`."""
        ...

    @property
    def decision_entries(self) -> str:
        """The table that decisions are selected from, with an index hint if the database needs one."""
        ...

    @property
    def in_transaction(self) -> bool: ...

    def execute(self, sql: str, values: Sequence[SqlValue] = (), /) -> SqlRows: ...

    def executemany(self, sql: str, rows: Iterable[Sequence[SqlValue]], /) -> object: ...

    def close(self) -> None: ...

    def begin_read(self) -> None:
        """Begin a transaction whose queries all see the same state."""
        ...

    def begin_write(self, lock: str) -> None:
        """Begin a transaction. Until it ends, other transactions with the same lock wait."""
        ...

    def set_durable(self, is_durable: bool) -> None:
        """Set whether committed transactions must survive power loss. In PostgreSQL, they always do."""
        ...

    def set_lock_timeout(self, seconds: float) -> None:
        """Set how long a statement waits for other processes before it fails."""
        ...

    def read_last_group_id(self) -> int:
        """Return the highest id that a group of runs has ever had."""
        ...

    def create_temporary_copies(self, *tables: str) -> None:
        """Create empty temporary copies of these tables, which hide the originals until the connection is closed."""
        ...


@contextmanager
def read_transaction(connection: SqlConnection) -> Iterator[None]:
    """Run the queries in the block on the same snapshot of the store."""
    connection.begin_read()
    with _finish_transaction(connection):
        yield


@contextmanager
def write_transaction(connection: SqlConnection, lock: str) -> Iterator[None]:
    """Run the block in a transaction. Transactions with the same lock run one at a time."""
    connection.begin_write(lock)
    with _finish_transaction(connection):
        yield


@contextmanager
def _finish_transaction(connection: SqlConnection) -> Iterator[None]:
    """Commit the open transaction when the block ends, and roll it back if the block or the commit fails."""
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
