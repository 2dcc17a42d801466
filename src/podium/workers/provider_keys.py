"""The keyring: keys of model providers that come with an errand, in the memory of the commander and nowhere else.

A commander has the keys of the shell that started it. Whoever hands it an errand later may have others, or none, and
other addresses that they are for: those are said to it over a socket that only its user can reach, before the errand
is written down. Where no commander is there, the one that is started then has them from its own environment; where
another's was just starting or ending, they are brought to it, and it waits for as long as they are promised.
"""

from __future__ import annotations

import fcntl
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
from ..values.errors import OutsideFailed
from .commander_socket import commander_socket_path

MAX_KEYS_BYTES = 65536
SEND_TIMEOUT_SECONDS = 1.0
"""How long a commander that is busy is waited for."""
KEYS_TIMEOUT_SECONDS = 30.0
"""How long keys may take that are promised."""
POLL_SECONDS = 0.02
"""How often to look whether they still are."""


class ProviderKeys(Struct, frozen=True):
    """What one run's worker calls its models with: variables with keys and addresses, empty where there is none."""

    run: str
    environ: dict[str, str]


def send_keys(store: Path, run: str, environ: Mapping[str, str]) -> bool:
    """Give the commander of a store the keys for a run; whether there is one that has them now."""
    path = _keys_socket_path(store)
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ours:
        before = path.lstat()
        ours.settimeout(SEND_TIMEOUT_SECONDS)
        ours.sendto(msgspec.json.encode(ProviderKeys(run, dict(environ))), str(path))
        # One that closes its keyring takes that away first, and then what has come.
        return os.path.samestat(before, path.lstat())
    return False


class KeyReceiver:
    """The keys that a commander was given. Only who holds the commander's own socket may open it."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._path = _keys_socket_path(store)
        self._keys: dict[str, dict[str, str]] = {}

    def open(self) -> None:
        """Have a place to which keys can come."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)
        self._path.unlink(missing_ok=True)
        self._socket.bind(str(self._path))
        os.chmod(self._path, 0o600)  # noqa: PTH101 - as it is bound

    async def receive_forever(self) -> None:
        """Take what comes, for ever."""
        while True:
            await wait_readable(self._socket)
            self._receive_pending()

    async def wait_for_keys(self, run: str, *, within: float = KEYS_TIMEOUT_SECONDS) -> None:
        """Wait for the keys of a run while somebody promises them. Raises OutsideFailed where that takes too long."""
        with move_on_after(within):
            # In this order: whoever promises them brings them before it stops promising.
            while is_delivery_pending(self._store, run) and not self.get_keys(run):  # noqa: ASYNC110 - a lock does not ring
                await sleep(POLL_SECONDS)
            return
        what = "the keys of the shell that it was delegated from"
        raise OutsideFailed(f"{what} have not come within {within:g} s; delegate it again")

    def get_keys(self, run: str) -> dict[str, str]:
        """The keys that came with a run; none where its commander's own will do."""
        self._receive_pending()
        return self._keys.get(run, {})

    def discard_keys(self, run: str) -> None:
        """Let go of a run's keys."""
        self._keys.pop(run, None)

    def close(self) -> None:
        """Take nothing more than has come: what it is for may be found only after this."""
        self._path.unlink(missing_ok=True)
        self._receive_pending()
        self._socket.close()

    def _receive_pending(self) -> None:
        with suppress(BlockingIOError):
            while True:
                with suppress(msgspec.MsgspecError):
                    keys = msgspec.json.decode(self._socket.recv(MAX_KEYS_BYTES), type=ProviderKeys)
                    self._keys[keys.run] = keys.environ


def _keys_socket_path(store: Path) -> Path:
    return commander_socket_path(store).with_suffix(".keys")


class KeyDelivery(NamedTuple):
    """A run whose keys are promised, and the open lock, which can be left to another process as its standard input."""

    run: str
    descriptor: int


@contextmanager
def announce_keys(store: Path, run: str = "") -> Iterator[KeyDelivery]:
    """Promise the keys for a run, which may be one that is still to begin, for as long as the block lasts."""
    run = run or secrets.token_hex(6)
    path = _delivery_lock_path(store, run)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield KeyDelivery(run, descriptor)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def is_delivery_pending(store: Path, run: str) -> bool:
    """Whether somebody will bring the keys for a run."""
    path = _delivery_lock_path(store, run)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        path.unlink(missing_ok=True)
        return False
    finally:
        os.close(descriptor)


def finish_delivery(store: Path, run: str) -> None:
    """Be done with the promise that was left to this process."""
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    _delivery_lock_path(store, run).unlink(missing_ok=True)


def _delivery_lock_path(store: Path, run: str) -> Path:
    return ensure_socket_folder(store) / f"keys-{run}"
