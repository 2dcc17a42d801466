"""Open a commander's socket, with a lock that allows only one commander at a time.

The socket is in the private folder for the store's wakeup sockets: next to the store, or in /tmp if that path is too
long for a socket. The process that holds the lock owns the socket. The operating system releases the lock when the
process exits; a lock file that is not locked has no effect.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..store.wakeup import ensure_socket_folder
from ..system.file_lock import try_lock_descriptor
from ..values.errors import PodiumError
from ..values.store_address import StoreAddress

SOCKET_NAME = "commander"
BACKLOG = 128


class SocketInUse(PodiumError):
    """The socket cannot be opened, usually because another commander owns it."""


def commander_socket_path(store: StoreAddress) -> Path:
    """Return the path of a commander's socket. Create its folder, accessible only to its owner, if necessary."""
    return ensure_socket_folder(store) / SOCKET_NAME


@contextmanager
def bind_socket(path: Path) -> Iterator[socket.socket]:
    """Listen at a commander's socket path until the block ends. Raise SocketInUse if the path is in use.

    A socket that a dead process left behind is replaced. A socket in use is never replaced.
    """
    lock = _acquire_lock(path)
    try:
        _remove_stale_socket(path)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            try:
                listener.bind(str(path))
            except OSError as error:
                raise SocketInUse(f"cannot create a socket at {path}: {error.strerror or error}") from error
            try:
                path.chmod(0o600)
                listener.listen(BACKLOG)
                yield listener
            finally:
                path.unlink(missing_ok=True)
    finally:
        _lock_path(path).unlink(missing_ok=True)
        os.close(lock)


def is_commander_listening(path: Path) -> bool:
    """Return whether a commander is listening at a socket path."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        code = probe.connect_ex(str(path))
    return code not in (errno.ECONNREFUSED, errno.ENOENT)


def _lock_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def _acquire_lock(path: Path) -> int:
    """Lock the lock file and return its descriptor. Retry if the previous owner has just removed the file."""
    while True:
        try:
            lock = os.open(_lock_path(path), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise SocketInUse(
                f"cannot open the lock file {_lock_path(path)}: {error.strerror}; remove the file and try again"
            ) from error
        try:
            if not try_lock_descriptor(lock):
                raise _make_in_use_error(path)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(lock), os.lstat(_lock_path(path))):
                    return lock
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)


def _remove_stale_socket(path: Path) -> None:
    """Remove the socket if no process listens on it. Raise SocketInUse if one does, or if the path is not a socket."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise SocketInUse(f"{path} is not a socket; remove it, because the commander needs this path for its socket")
    # A lock file can be removed while its commander is alive, so try to connect as well.
    if is_commander_listening(path):
        raise _make_in_use_error(path)
    path.unlink()


def _make_in_use_error(path: Path) -> SocketInUse:
    return SocketInUse(f"another commander is listening at {path}; use that one, or stop it first")
