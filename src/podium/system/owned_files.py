"""Name temporary files after the process that owns them, and remove the files of processes that have exited."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

WRITTEN = ".podium-write"
"""The kind of temporary file that replaces another file once its content is complete."""
OWNED = re.compile(
    r"(?P<kind>seal|probe|podium-probe|\.podium-write)-(?P<namespace>\d+)-(?P<pid>\d+)-[0-9a-f]{16}(?:-seen)?"
)
EARLIER = re.compile(r"\.podium-[0-9a-f]{16}")
"""Matches names that earlier versions gave to temporary files. They do not tell who owns the file."""


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
