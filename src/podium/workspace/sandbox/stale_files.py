"""Name temporary files after the process that owns them, and remove the files of processes that have exited."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

OWNED = re.compile(r"(?P<kind>seal|probe|podium-probe)-(?P<namespace>\d+)-(?P<pid>\d+)-[0-9a-f]{16}(?:-seen)?")


def make_owned_name(kind: str) -> str:
    """Return a new name for a file or folder that belongs to this process."""
    return f"{kind}-{_read_namespace()}-{os.getpid()}-{secrets.token_hex(8)}"


def remove_stale_files(home: Path, checkout: Path) -> None:
    """Remove files that exited processes left behind in a Podium home, a checkout and the temporary folder."""
    for folder in (home, home / "sandbox", checkout, Path(tempfile.gettempdir())):
        with suppress(OSError):
            for entry in os.scandir(folder):
                if (
                    (found := OWNED.fullmatch(entry.name))
                    and _is_gone(found)
                    and entry.stat(follow_symlinks=False).st_uid == os.geteuid()
                ):
                    _remove(Path(entry.path))


def _remove(path: Path) -> None:
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def _is_gone(found: re.Match[str]) -> bool:
    # A process id has no meaning in another namespace, such as a container's.
    return found["namespace"] == _read_namespace() and not Path("/proc", found["pid"]).exists()


@cache
def _read_namespace() -> str:
    return str(Path("/proc/self/ns/pid").stat().st_ino)
