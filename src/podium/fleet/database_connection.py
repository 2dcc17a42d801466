"""A connection to PostgreSQL that is reopened after it is lost.

If the server cannot be reached, does not answer in time or cannot execute a statement now, PlacementUnavailable is
raised. The next statement opens a new connection if needed. No statement is retried automatically, because the
server may already have executed it. If the server refuses a statement, StoreFailed is raised.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import AsyncConnection, AsyncRawCursor
from psycopg.rows import dict_row

from ..values.errors import PlacementUnavailable, StoreFailed

ANSWER_SECONDS = 10.0
"""How long a statement may take before its connection is considered dead."""

_OPTIONS: dict[str, Any] = {
    "application_name": "podium",
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 3,
    "keepalives_count": 3,
}


class DatabaseConnection:
    """A connection that is opened on demand. Statements from several tasks are executed one after another."""

    def __init__(self, url: str, *, answer_seconds: float = ANSWER_SECONDS) -> None:
        self._url = url
        self._answer_seconds = answer_seconds
        self._lock = asyncio.Lock()
        self._connection: AsyncConnection[Any] | None = None

    async def fetch(self, query: str, *values: object) -> list[dict[str, object]]:
        """Execute a statement with the parameters $1, $2 and so on, and return its rows."""
        return (await self._execute(query, values)) or []

    async def execute(self, query: str, *values: object) -> None:
        """Execute a statement that returns no rows, or whose rows do not matter."""
        await self._execute(query, values)

    async def open(self) -> tuple[AsyncConnection[Any], bool]:
        """Return the open connection, and whether it is new. Raise PlacementUnavailable if it cannot be opened."""
        if self._connection is not None and not self._connection.closed:
            return self._connection, False
        try:
            self._connection = await AsyncConnection.connect(self._url, autocommit=True, **_OPTIONS)
        except psycopg.OperationalError as error:
            raise PlacementUnavailable(f"cannot connect to the fleet's database: {_first_line(error)}") from error
        return self._connection, True

    async def aclose(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    async def _execute(self, query: str, values: tuple[object, ...]) -> list[dict[str, object]] | None:
        async with self._lock:
            if self._connection is not None and _has_input(self._connection):
                # Between statements, a server sends data only to end the session.
                await self._connection.close()
            connection, _ = await self.open()
            # The watchdog shuts down the socket. A timeout would instead cancel the statement, and cancelling waits for
            # a server that may not answer.
            watchdog = asyncio.get_running_loop().call_later(self._answer_seconds, cut_connection, connection)
            try:
                cursor = AsyncRawCursor(connection, row_factory=dict_row)
                await cursor.execute(query, values or None)
                return None if cursor.description is None else await cursor.fetchall()
            except psycopg.OperationalError as error:
                if _is_gone(error):
                    await connection.close()
                raise PlacementUnavailable(f"the fleet's database failed: {_first_line(error)}") from error
            except psycopg.Error as error:
                raise StoreFailed(f"the fleet's database refused a statement: {_first_line(error)}") from error
            except asyncio.CancelledError:
                await connection.close()
                raise
            finally:
                watchdog.cancel()


def cut_connection(connection: AsyncConnection[Any]) -> None:
    """Shut down the socket of a connection, so that anything waiting for an answer fails at once."""
    with suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(connection.fileno())) as raw:
        raw.shutdown(socket.SHUT_RDWR)


def _has_input(connection: AsyncConnection[Any]) -> bool:
    """Return whether the server has sent something, or has closed the connection."""
    if connection.closed:
        return False
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _is_gone(error: psycopg.Error) -> bool:
    """Return whether the error means that the connection was lost or closed, or that the server is still starting."""
    return error.sqlstate is None or error.sqlstate.startswith("57P")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or ["no answer"])[0]
