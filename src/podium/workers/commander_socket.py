"""Where a commander's socket lies, and how one commander at a time comes to hold it.

The directory is the private one that the store's bells hang in: beside the store, or in the runtime
directory where that path is too long for a socket's. A lock tells who holds the socket. It is the
system's, so that it ends with its process, however that ends; the file without the lock means nothing.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..store.wakeup import ensure_socket_folder
from ..values.errors import PodiumError

SOCKET_NAME = "commander"
BACKLOG = 128


class SocketInUse(PodiumError):
    """Another commander has the socket, or something that is none is in its place."""


def commander_socket_path(store: Path) -> Path:
    """Where the commander of a store listens, in a directory that nobody else can enter. Raises StoreFailed."""
    return ensure_socket_folder(store) / SOCKET_NAME


@contextmanager
def bind_socket(path: Path) -> Iterator[socket.socket]:
    """A socket that listens at a path of `socket_path`, for as long as the block lasts. Raises Held.

    One that is alive is never taken; one that its process left behind is replaced.
    """
    lock = _acquire_lock(path)
    try:
        _remove_stale_socket(path)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            try:
                listener.bind(str(path))
            except OSError as error:
                raise SocketInUse(f"no socket can be made at {path}: {error.strerror or error}") from error
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
    """Whether a commander listens at a path of `socket_path`."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        code = probe.connect_ex(str(path))
    return code not in (errno.ECONNREFUSED, errno.ENOENT)


def _lock_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def _acquire_lock(path: Path) -> int:
    """The open lock file, locked. Whoever ends removes it, so one that is no longer there is not the lock."""
    while True:
        try:
            lock = os.open(_lock_path(path), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise SocketInUse(f"the lock {_lock_path(path)} cannot be opened: {error.strerror}; remove it") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(lock), os.lstat(_lock_path(path))):
                    return lock
        except BlockingIOError:
            os.close(lock)
            raise _make_in_use_error(path) from None
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)


def _remove_stale_socket(path: Path) -> None:
    """Remove a socket that nobody listens at."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise SocketInUse(f"{path} is not a socket, and the commander's socket belongs there; remove it")
    # A lock file can be removed while its commander lives, so the socket itself is asked too.
    if is_commander_listening(path):
        raise _make_in_use_error(path)
    path.unlink()


def _make_in_use_error(path: Path) -> SocketInUse:
    return SocketInUse(f"another commander listens at {path}; use that one, or stop it first")
