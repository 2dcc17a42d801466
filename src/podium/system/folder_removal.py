"""Remove a folder that contains an agent's files, whatever their nesting depth and permissions.

Every subfolder is moved to the top level and emptied there. This way, the removal never descends more than two levels,
no path is too long, and no symbolic link is followed.
"""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from pathlib import Path

from ..values.errors import OutsideFailed

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
