"""Create, name and remove files and folders that only this user or this process owns.

A folder with an agent's files is removed whatever their nesting depth and permissions: every subfolder is moved to the
top level and emptied there. This way, the removal never descends more than two levels, no path is too long, and no
symbolic link is followed.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import stat
import tempfile
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

from ..values.errors import OutsideFailed

WRITTEN = ".podium-write"
"""The kind of temporary file that replaces another file once its content is complete."""
OWNED = re.compile(
    r"(?P<kind>seal|probe|podium-probe|\.podium-write)-(?P<namespace>\d+)-(?P<pid>\d+)-[0-9a-f]{16}(?:-seen)?"
)
EARLIER = re.compile(r"\.podium-[0-9a-f]{16}")
"""Matches names that earlier versions gave to temporary files. They do not tell who owns the file."""


PRIVATE = 0o700

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_folder(folder: Path) -> None:
    """Remove a folder and everything in it, including read-only content. No symbolic link is followed.

    Raise OutsideFailed if `folder` itself is a symbolic link.
    """
    if folder.is_symlink():
        raise OutsideFailed(f"{folder} is a symbolic link and was not removed; remove it yourself")
    top = _open_folder(os.fspath(folder), None)
    try:
        found: deque[str] = deque()
        _empty_folder(top, top, found)
        while found:
            name = found.popleft()
            inside = _open_folder(name, top)
            try:
                _empty_folder(inside, top, found)
            finally:
                os.close(inside)
            os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    folder.rmdir()


def _open_folder(name: str, within: int | None) -> int:
    """Give the owner full permissions on a folder, and open it in order to remove its content."""
    with suppress(PermissionError):
        descriptor = os.open(name, _FOLDER, dir_fd=within)
        os.fchmod(descriptor, 0o700)
        return descriptor
    os.chmod(name, 0o700, dir_fd=within)
    return os.open(name, _FOLDER, dir_fd=within)


def _empty_folder(folder: int, top: int, found: deque[str]) -> None:
    """Remove the files in a folder, and move its subfolders to the top level under new names."""
    with os.scandir(folder) as entries:
        listed = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in listed:
        if not is_folder:
            os.unlink(name, dir_fd=folder)
        elif folder == top:
            found.append(name)
        else:
            found.append(_move_to_top(name, folder, top))


def _move_to_top(name: str, folder: int, top: int) -> str:
    new = f"{os.urandom(8).hex()}.removing"
    try:
        os.rename(name, new, src_dir_fd=folder, dst_dir_fd=top)
    except PermissionError:
        # Moving a folder changes its `..` entry, so it must be writable itself.
        os.close(_open_folder(name, folder))
        os.rename(name, new, src_dir_fd=folder, dst_dir_fd=top)
    return new


def make_private_folder(path: Path) -> None:
    """Create a folder and its missing parents, each accessible only to its owner. An existing folder is not changed.

    The exception is `~/.podium`: it is made private if `path` is there and other users can access it. Other folders may
    be shared on purpose.
    """
    _make_user_home_private(path)
    # `Path.mkdir` applies its mode to the last folder only.
    for folder in reversed((path, *path.parents)):
        if not folder.is_dir():
            folder.mkdir(mode=PRIVATE, exist_ok=True)


def _make_user_home_private(path: Path) -> None:
    """Make `~/.podium` private if `path` is inside it, and it is a folder of this user."""
    with suppress(OSError, RuntimeError):  # no home folder, no `~/.podium` yet, or a file system without permissions
        home = Path.home() / ".podium"
        if not path.is_relative_to(home):
            return
        folder = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            found = os.fstat(folder)
            if found.st_uid == os.geteuid() and found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                os.fchmod(folder, PRIVATE)
        finally:
            os.close(folder)


def make_owned_name(kind: str) -> str:
    """Return a new name for a file or folder that belongs to this process."""
    return f"{kind}-{_read_namespace()}-{os.getpid()}-{secrets.token_hex(8)}"


def is_own_name(name: str) -> bool:
    """Return whether a name is that of a temporary file of Podium, whichever process owns it."""
    return bool(OWNED.fullmatch(name) or EARLIER.fullmatch(name))


def remove_stale_files(home: Path, checkout: Path) -> None:
    """Remove files that exited processes left behind in a Podium home, a checkout and the temporary folder."""
    remove_stale_in((home, home / "sandbox", checkout, Path(tempfile.gettempdir())))


def remove_stale_in(folders: Iterable[Path]) -> None:
    """Remove files that exited processes left behind directly in these folders."""
    for folder in folders:
        with suppress(OSError):
            for entry in os.scandir(folder):
                remove_if_stale(Path(entry.path))


def remove_if_stale(path: Path) -> None:
    """Remove a temporary file of this user if the process that owns it has exited."""
    found = OWNED.fullmatch(path.name)
    with suppress(OSError):
        if found and _is_gone(found) and path.lstat().st_uid == os.geteuid():
            _remove(path)


def _remove(path: Path) -> None:
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def _is_gone(found: re.Match[str]) -> bool:
    # A process id has no meaning in another namespace, such as a container's.
    if found["namespace"] != _read_namespace() or os.name == "nt":
        return False
    try:
        os.kill(int(found["pid"]), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return _is_dying(found["pid"])


def _is_dying(pid: str) -> bool:
    """Return whether a process has exited but is not reaped yet, or is killed as soon as the disk has responded."""
    try:
        lines = Path("/proc", pid, "status").read_text().splitlines()
    except OSError:  # it has exited now, or there is no such file on this system
        return False
    status = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
    pending = int(status["SigPnd"][0], 16) | int(status["ShdPnd"][0], 16)
    return status["State"][0] in "ZX" or bool(pending & 1 << (signal.SIGKILL - 1))


@cache
def _read_namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:  # there are no such namespaces on this system
        return "0"
