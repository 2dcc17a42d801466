"""Create folders that only their owner can access."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

PRIVATE = 0o700


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
