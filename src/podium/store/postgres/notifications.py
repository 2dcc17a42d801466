"""Wake processes through LISTEN and NOTIFY when a PostgreSQL store has new data.

One thread in each process listens on its own connection, and passes every notification on to the sockets that the
process waits on. Because a notification can be lost with the connection, each socket also wakes up once a second.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from contextlib import suppress

import psycopg

from ...values.errors import PodiumError
from ...values.store_address import PostgresAddress
from .connection import borrow_connection, connect

WAKE_SECONDS = 1.0
CHANNELS = {"owner": "podium_owner", "follower": "podium_follower"}
CLIENT_LOCK = (0x506F6469, 1)
"""The advisory lock that a process holds, in shared mode, while it is registered as a client."""

_listeners: dict[tuple[int, PostgresAddress], _Listener] = {}
_lock = threading.Lock()


class PostgresWakeup:
    """A socket that becomes readable on each notification of its kind, and at least once a second."""

    def __init__(self, store: PostgresAddress, kind: str) -> None:
        self._store = store
        self.channel = CHANNELS.get(kind, "")
        self.is_client = kind == "client"
        self._reading, self._writing = socket.socketpair()
        self._reading.setblocking(False)
        self._writing.setblocking(False)
        with _lock:
            key = (os.getpid(), store)
            if key not in _listeners:
                _listeners[key] = _Listener(store)
            self._listener = _listeners[key]
            self._listener.wakeups.add(self)
        self._listener.notice_change()

    def fileno(self) -> int:
        return self._reading.fileno()

    def wake(self) -> None:
        """Make this socket readable."""
        with suppress(OSError):  # the socket is closed, or its buffer is full, so it is readable already
            self._writing.send(b"!")

    def drain(self) -> None:
        """Discard all received wakeups."""
        with suppress(BlockingIOError):
            while self._reading.recv(4096):
                pass

    def close(self) -> None:
        with _lock:
            self._listener.wakeups.discard(self)
            if not self._listener.wakeups and _listeners.get((os.getpid(), self._store)) is self._listener:
                del _listeners[os.getpid(), self._store]
                self._listener.is_closed = True
        self._listener.notice_change()
        self._reading.close()
        self._writing.close()


class _Listener:
    """The thread that listens for notifications from one store, and the sockets that it wakes in this process."""

    def __init__(self, store: PostgresAddress) -> None:
        self.wakeups: set[PostgresWakeup] = set()
        self.is_closed = False
        self._store = store
        self._changes, self._change = socket.socketpair()
        self._changes.setblocking(False)
        threading.Thread(target=self._listen, name="podium-notifications", daemon=True).start()

    def notice_change(self) -> None:
        """Make the thread check its sockets again."""
        with suppress(OSError):
            self._change.send(b"!")

    def _listen(self) -> None:
        while not self.is_closed:
            try:
                connection = connect(self._store)
            except (psycopg.Error, PodiumError):
                self._wake_sockets()
                select.select([self._changes], [], [], WAKE_SECONDS)
                continue
            with suppress(psycopg.Error):
                self._pass_notifications_on(connection)
            connection.close()
        self._changes.close()
        self._change.close()

    def _pass_notifications_on(self, connection: psycopg.Connection) -> None:
        for channel in CHANNELS.values():
            connection.execute(f"LISTEN {channel}".encode())
        is_client, last = False, time.monotonic()
        self._wake_sockets()  # a notification may have been sent before this connection listened
        while not self.is_closed:
            if is_client != (is_client := self._has_client()):
                verb = "pg_advisory_lock_shared" if is_client else "pg_advisory_unlock_shared"
                connection.execute(f"SELECT {verb}(%s, %s)".encode(), CLIENT_LOCK)
            wait = max(0.0, last + WAKE_SECONDS - time.monotonic())
            select.select([connection.pgconn.socket, self._changes.fileno()], [], [], wait)
            with suppress(BlockingIOError):
                self._changes.recv(4096)
            channels = {one.channel for one in connection.notifies(timeout=0)}
            if time.monotonic() >= last + WAKE_SECONDS:
                self._wake_sockets()
                last = time.monotonic()
            elif channels:
                self._wake_sockets(channels)

    def _has_client(self) -> bool:
        with _lock:
            return any(one.is_client for one in self.wakeups)

    def _wake_sockets(self, channels: set[str] | None = None) -> None:
        with _lock:
            wakeups = list(self.wakeups)
        for one in wakeups:
            if channels is None or one.channel in channels:
                one.wake()


def notify(store: PostgresAddress, kind: str) -> None:
    """Wake all processes that are waiting for this kind of notification.

    Errors are ignored, because waiting processes also wake up every second.
    """
    if kind not in CHANNELS:
        return
    with suppress(psycopg.Error, PodiumError), borrow_connection(store) as connection:
        connection.execute(b"SELECT pg_notify(%s, '')", (CHANNELS[kind],))


def list_connected_clients(store: PostgresAddress) -> set[str]:
    """Return the database session id of each client, on any machine."""
    with borrow_connection(store) as connection:
        found = connection.execute(
            b"SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = %s AND objid = %s AND objsubid = 2"
            b" AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
            CLIENT_LOCK,
        ).fetchall()
    return {str(pid) for (pid,) in found}
