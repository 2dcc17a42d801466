"""Deliver the provider keys for workers' runs to the commander, which stores them only in memory.

A commander has the keys from the environment of the shell that started it. A later caller can delegate a task with
other keys and addresses, or with none. The caller sends them over a socket that only its user can access, before a
commander can claim the task's run. If no commander is running, the caller starts one, which gets the keys from its
environment. If another commander was just starting or exiting, the new process sends the keys to that commander. A
commander waits for the keys of a run as long as a delivery is registered for the run.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec
from anyio import move_on_after, sleep, wait_readable
from msgspec import Struct

from ..store.wakeup import ensure_socket_folder
from ..system.file_lock import lock_descriptor, try_lock_descriptor
from ..values.errors import OutsideFailed
from ..values.store_address import StoreAddress
from .commander_socket import commander_socket_path

MAX_KEYS_BYTES = 65536
SEND_TIMEOUT_SECONDS = 1.0
"""How long to wait for a busy commander."""
KEYS_TIMEOUT_SECONDS = 30.0
"""How long to wait for keys that are being delivered."""
POLL_SECONDS = 0.02
"""How often to check whether the keys are still being delivered."""


class ProviderKeys(Struct, frozen=True):
    """The environment variables that contain the keys and addresses for one run's models. `environ` may be empty."""

    run: str
    environ: dict[str, str]


def send_keys(store: StoreAddress, run: str, environ: Mapping[str, str]) -> bool:
    """Send a run's keys to the commander of a store. Return whether a running commander has received them."""
    path = _keys_socket_path(store)
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ours:
        before = path.lstat()
        ours.settimeout(SEND_TIMEOUT_SECONDS)
        ours.sendto(msgspec.json.encode(ProviderKeys(run, dict(environ))), str(path))
        # A commander that is shutting down removes the socket before it reads the last messages. So if the socket still
        # exists, the commander reads this message.
        return os.path.samestat(before, path.lstat())
    return False


class KeyReceiver:
    """Receives keys for a commander. Only the process that owns the commander's socket may open a receiver."""

    def __init__(self, store: StoreAddress) -> None:
        self._store = store
        self._path = _keys_socket_path(store)
        self._keys: dict[str, dict[str, str]] = {}

    def open(self) -> None:
        """Open the socket that receives keys."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)
        self._path.unlink(missing_ok=True)
        self._socket.bind(str(self._path))
        os.chmod(self._path, 0o600)  # noqa: PTH101 - a path, like the one bound

    async def receive_forever(self) -> None:
        """Receive keys until cancelled."""
        while True:
            await wait_readable(self._socket)
            self._receive_pending()

    async def wait_for_keys(self, run: str, *, within: float = KEYS_TIMEOUT_SECONDS) -> None:
        """Wait until the keys for a run arrive, or until no delivery is registered for the run.

        Raise OutsideFailed after `within` seconds.
        """
        with move_on_after(within):
            # Check in this order, because the sender delivers the keys before it unregisters the delivery.
            while is_delivery_pending(self._store, run) and not self.get_keys(run):  # noqa: ASYNC110 - a lock cannot be awaited
                await sleep(POLL_SECONDS)
            return
        what = "the provider keys from the environment of the shell that delegated the task"
        raise OutsideFailed(f"{what} did not arrive within {within:g} s; delegate the task again")

    def get_keys(self, run: str) -> dict[str, str]:
        """Return the keys received for a run. If there are none, only the commander's own keys apply."""
        self._receive_pending()
        return self._keys.get(run, {})

    def discard_keys(self, run: str) -> None:
        """Discard a run's keys."""
        self._keys.pop(run, None)

    def close(self) -> None:
        """Close the socket, but keep the received keys, because the commander may not have found their runs yet."""
        self._path.unlink(missing_ok=True)
        self._receive_pending()
        self._socket.close()

    def _receive_pending(self) -> None:
        with suppress(BlockingIOError):
            while True:
                with suppress(msgspec.MsgspecError):
                    keys = msgspec.json.decode(self._socket.recv(MAX_KEYS_BYTES), type=ProviderKeys)
                    self._keys[keys.run] = keys.environ


def _keys_socket_path(store: StoreAddress) -> Path:
    return commander_socket_path(store).with_suffix(".keys")


class KeyDelivery(NamedTuple):
    """A delivery of keys: its run, and the descriptor of its lock, which a child process can inherit as its stdin."""

    run: str
    descriptor: int


@contextmanager
def announce_keys(store: StoreAddress, run: str = "") -> Iterator[KeyDelivery]:
    """Register a delivery of keys for a run until the block ends. The run need not exist yet."""
    run = run or secrets.token_hex(6)
    path = _delivery_lock_path(store, run)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        lock_descriptor(descriptor)
        yield KeyDelivery(run, descriptor)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def is_delivery_pending(store: StoreAddress, run: str) -> bool:
    """Return whether a delivery of keys is registered for a run."""
    path = _delivery_lock_path(store, run)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        if not try_lock_descriptor(descriptor):
            return True
        path.unlink(missing_ok=True)
        return False
    finally:
        os.close(descriptor)


def finish_delivery(store: StoreAddress, run: str) -> None:
    """End the delivery of a run's keys.

    Release the lock that this process inherited as its standard input, and remove the lock file.
    """
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    _delivery_lock_path(store, run).unlink(missing_ok=True)


def _delivery_lock_path(store: StoreAddress, run: str) -> Path:
    return ensure_socket_folder(store) / f"keys-{run}"
