"""Notify other processes immediately that the store has new data.

A PostgreSQL store uses the server's notifications, and a SQLite store uses wakeup sockets. A waiting process binds a
datagram socket in a private directory; a writing process sends a datagram to every socket there. The datagram carries
no information: the receiver reads the store. There are three kinds of sockets: owners of runs wait for mailbox
messages, followers wait for entries, and clients' sockets only show that someone can answer requests. Followers and
clients wake the owners when they start, so that owners know about them without listing the directory for every entry.
"""

from __future__ import annotations

import os
import secrets
import socket
import stat
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Literal, Protocol

from ..system.owned_files import make_private_folder
from ..values.errors import StoreFailed
from ..values.store_address import StoreAddress, make_local_path

LONGEST_FOLDER = 70
"""The maximum length of a directory's path in bytes: socket paths are limited to 107, and file names need up to 34."""

WaiterKind = Literal["owner", "follower", "client"]


class Wakeup(Protocol):
    """A socket that becomes readable when another process sends a wakeup."""

    def fileno(self) -> int: ...

    def wake(self) -> None:
        """Wake this process itself."""
        ...

    def drain(self) -> None:
        """Discard all received wakeups."""
        ...

    def close(self) -> None: ...


def open_wakeup(store: StoreAddress, kind: WaiterKind) -> Wakeup:
    """Open a socket that receives wakeups of one kind."""
    if isinstance(store, Path):
        return WakeupSocket(ensure_socket_folder(store), kind)
    from .postgres.notifications import PostgresWakeup  # imported here to keep start-up fast

    return PostgresWakeup(store, kind)


def send_wakeup(store: StoreAddress, kind: WaiterKind) -> None:
    """Wake all processes that wait for wakeups of one kind."""
    if isinstance(store, Path):
        sender = WakeupSender(ensure_socket_folder(store), kind)
        sender.wake_all()
        sender.close()
        return
    from .postgres.notifications import notify  # imported here to keep start-up fast

    notify(store, kind)


class FollowerWakeups(Protocol):
    """Wakes followers after entries are committed."""

    def find_sockets(self) -> None:
        """Refresh the set of followers to wake."""
        ...

    def wake_all(self) -> None: ...

    def close(self) -> None: ...


def open_follower_wakeups(store: StoreAddress) -> FollowerWakeups:
    """Return the object that wakes a store's followers after this process has committed entries."""
    return WakeupSender(ensure_socket_folder(store), "follower") if isinstance(store, Path) else _NoWakeups()


class _NoWakeups:
    """Does nothing: the committer of a PostgreSQL store notifies the followers itself."""

    def find_sockets(self) -> None:
        pass

    def wake_all(self) -> None:
        pass

    def close(self) -> None:
        pass


class WakeupSocket:
    """A bound datagram socket that becomes readable when another process sends a wakeup."""

    def __init__(self, folder: Path, kind: WaiterKind) -> None:
        self.path = folder / f"{kind}-{os.getpid()}-{secrets.token_hex(4)}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)
        self._socket.bind(str(self.path))

    def fileno(self) -> int:
        return self._socket.fileno()

    def wake(self) -> None:
        """Wake this socket from its own process. If its path was deleted, the socket stays readable."""
        try:
            self._socket.sendto(b"!", str(self.path))
        except BlockingIOError:
            pass  # its queue is full, so it will wake up anyway
        except OSError:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RD)

    def drain(self) -> None:
        """Discard all received wakeups."""
        with suppress(BlockingIOError):
            while self._socket.recv(16):
                pass

    def close(self) -> None:
        self._socket.close()
        self.path.unlink(missing_ok=True)


class WakeupSender:
    """Sends wakeups to all sockets of one kind that existed at the last call to `find_sockets`."""

    def __init__(self, folder: Path, kind: WaiterKind) -> None:
        self._folder = folder
        self._kind = kind
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)
        self.find_sockets()

    def find_sockets(self) -> None:
        """Refresh the set of sockets to wake. Raise StoreFailed if the directory cannot be read."""
        try:
            self._sockets = {str(path) for path in self._folder.iterdir() if path.name.startswith(self._kind)}
        except OSError as error:
            raise StoreFailed(f"cannot read the folder {self._folder}: {error.strerror}") from error

    def wake_all(self) -> None:
        """Wake all sockets, and remove sockets that no process has open any more."""
        for path in tuple(self._sockets):
            try:
                self._socket.sendto(b"!", path)
            except BlockingIOError:
                pass  # its queue is full, so it will wake up anyway
            except OSError:
                self._sockets.discard(path)
                with suppress(OSError):
                    Path(path).unlink(missing_ok=True)

    def close(self) -> None:
        self._socket.close()


def ensure_socket_folder(store: StoreAddress) -> Path:
    """Return the private directory for a store's wakeup sockets, creating it if needed.

    The directory is next to the store, or in /tmp if that path is too long for a socket. It does not depend on the
    environment, because all processes that use the store must find the same directory. Raise StoreFailed if it cannot
    be created or is not private.
    """
    whole = store.resolve() if isinstance(store, Path) else store.folder.resolve()
    folders = [make_local_path(whole if isinstance(store, Path) else store, "bells")]
    if len(os.fsencode(folders[0])) > LONGEST_FOLDER:
        shared = Path("/tmp", f"podium-{os.getuid()}")
        folders = [shared, shared / sha256(os.fsencode(whole)).hexdigest()[:12]]
    for folder in folders:
        try:
            # The home folder may not exist yet: a chat waits for requests before the first run creates the store.
            make_private_folder(folder.parent)
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise StoreFailed(f"cannot create the folder {folder}: {error.strerror}") from error
        _must_be_private(folder)
    return folders[-1]


def _must_be_private(folder: Path) -> None:
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise StoreFailed(f"{folder} is not a directory that only you can access; remove it and try again")
