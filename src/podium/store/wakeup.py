"""The doorbell: how a process learns at once that something new is in the store.

Whoever waits binds a datagram socket in a private directory; whoever writes rings every socket
there. The bell carries nothing: whoever hears it looks into the store. There are three kinds, for
owners of runs, who wait for letters, for followers, who wait for entries, and for clients, who are
there to answer. Followers and clients ring the owners when they come, so that these know of them
without looking for them at every entry.
"""

from __future__ import annotations

import os
import secrets
import socket
import stat
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Literal

from ..values.errors import StoreFailed

LONGEST_FOLDER = 70
"""A socket's path has at most 107 bytes, and a bell's name takes up to 34 of them."""

WaiterKind = Literal["owner", "follower", "client"]


class WakeupSocket:
    """A bound socket that others ring; readable whenever somebody did."""

    def __init__(self, folder: Path, kind: WaiterKind) -> None:
        self.path = folder / f"{kind}-{os.getpid()}-{secrets.token_hex(4)}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)
        self._socket.bind(str(self.path))

    def fileno(self) -> int:
        return self._socket.fileno()

    def wake(self) -> None:
        """Ring this bell from where it hangs."""
        with suppress(OSError):
            self._socket.sendto(b"!", str(self.path))

    def drain(self) -> None:
        """Forget the rings so far."""
        with suppress(BlockingIOError):
            while self._socket.recv(16):
                pass

    def close(self) -> None:
        self._socket.close()
        self.path.unlink(missing_ok=True)


class WakeupSender:
    """Rings all bells of a kind that hang when it is made or when it last looked."""

    def __init__(self, folder: Path, kind: WaiterKind) -> None:
        self._folder = folder
        self._kind = kind
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)
        self.find_sockets()

    def find_sockets(self) -> None:
        """Find out which bells hang now."""
        try:
            self._sockets = {str(path) for path in self._folder.iterdir() if path.name.startswith(self._kind)}
        except OSError as error:
            raise StoreFailed(f"the folder {self._folder} cannot be read: {error.strerror}") from error

    def wake_all(self) -> None:
        """Ring them all; a bell that nobody holds any more is taken down."""
        for path in tuple(self._sockets):
            try:
                self._socket.sendto(b"!", path)
            except BlockingIOError:
                pass  # its queue is full of rings: it knows
            except OSError:
                self._sockets.discard(path)
                with suppress(OSError):
                    Path(path).unlink(missing_ok=True)

    def close(self) -> None:
        self._socket.close()


def send_wakeup(folder: Path, kind: WaiterKind) -> None:
    """Ring every bell of a kind that hangs now."""
    sender = WakeupSender(folder, kind)
    sender.wake_all()
    sender.close()


def ensure_socket_folder(store: Path) -> Path:
    """The private directory for the bells of one store, the same for everybody who uses that store.

    It lies beside the store, or in the temporary directory where that path is too long for a
    socket's. Nothing in the environment has a say: whoever rings must find whoever waits.
    """
    whole = store.resolve()
    folders = [whole.parent / f"{whole.name}-bells"]
    if len(os.fsencode(folders[0])) > LONGEST_FOLDER:
        shared = Path("/tmp", f"podium-{os.getuid()}")
        folders = [shared, shared / sha256(os.fsencode(whole)).hexdigest()[:12]]
    for folder in folders:
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise StoreFailed(f"the folder {folder} cannot be made: {error.strerror}") from error
        _must_be_private(folder)
    return folders[-1]


def _must_be_private(folder: Path) -> None:
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise StoreFailed(
            f"{folder} must be a directory that only you can enter, and it is not; remove it and try again"
        )
