"""Register the clients of a store: those that are ready to answer requests, and the commands that a client may repeat.

Each client has an open wakeup socket while it is connected. The client ignores wakeups: the open socket only shows that
the client is connected. The next call to `list_clients` removes the sockets of processes that died. With a PostgreSQL
store, a lock in the database shows that a client is connected.

A client can send a command with an idempotency key, which is stored with an id before the command starts. If the
command creates an object, such as a run, the object gets this id. A client that repeats the command after a crash
therefore gets the object that the first attempt created.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from ..values.errors import Mistake
from ..values.store_address import StoreAddress
from .store_connection import open_connection, translate_errors
from .wakeup import ensure_socket_folder, open_wakeup, send_wakeup

KEY_SECONDS = 24 * 3600.0
"""How long a key is remembered."""
LONGEST_KEY = 200


class CommandKey(NamedTuple):
    """A stored key. `id` is the id for an object that the command creates. `reply` is the command's result, if any."""

    key: str
    id: str
    reply: bytes | None


@contextmanager
def register_client(store: StoreAddress) -> Iterator[None]:
    """Register this process as a client until the block ends, and wake the owners of runs."""
    wakeup = open_wakeup(store, "client")
    try:
        send_wakeup(store, "owner")
        yield
    finally:
        wakeup.close()


def list_clients(store: StoreAddress) -> set[str]:
    """Return the names of the connected clients."""
    if isinstance(store, Path):
        send_wakeup(store, "client")
        return {path.name for path in ensure_socket_folder(store).glob("client-*")}
    from .postgres.notifications import list_connected_clients  # imported here for start-up time

    with translate_errors(store):
        return list_connected_clients(store)


def claim_command_key(store: StoreAddress, key: str, digest: str) -> CommandKey:
    """Store a key with a new id, unless the key is already stored, and return the stored key.

    Raise Mistake if the key has an invalid length or was used for another command. `digest` identifies the command and
    its arguments.
    """
    if not 0 < len(key) <= LONGEST_KEY:
        raise Mistake(f"an idempotency key must have 1 to {LONGEST_KEY} characters, got {len(key)}")
    now = time.time()
    with closing(open_connection(store, create=True)) as connection, translate_errors(store):
        connection.begin_write("command_key")
        connection.execute("DELETE FROM command_key WHERE at < ?", (now - KEY_SECONDS,))
        connection.execute(
            "INSERT INTO command_key (key, digest, id, at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (key, digest, secrets.token_hex(6), now),
        )
        found = connection.execute("SELECT digest, id, reply FROM command_key WHERE key = ?", (key,)).fetchone()
        connection.execute("COMMIT")
    if found[0] != digest:
        raise Mistake(f"the idempotency key {key[:60]!r} was used for another command; use a new key")
    return CommandKey(key, found[1], found[2])


def store_command_reply(store: StoreAddress, key: str, reply: bytes) -> None:
    """Store the result of a command, so that later attempts with the same key return it."""
    with closing(open_connection(store, create=False)) as connection, translate_errors(store):
        connection.execute("UPDATE command_key SET reply = ? WHERE key = ?", (reply, key))
