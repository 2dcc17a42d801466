"""Removing a folder with all that is in it, however deep that is and whatever its rights: an agent made it.

Every folder inside is first brought up to the top and then emptied there. So nothing is ever deeper than two
steps, no path grows too long, and no folder is looked into through a link.
"""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from pathlib import Path

from ..values.errors import OutsideFailed

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_folder(folder: Path) -> None:
    """Remove a folder with all that is in it, what is closed to writing included. No link is followed."""
    if folder.is_symlink():
        raise OutsideFailed(f"{folder} is a link and was left; remove it yourself")
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
    """A folder to work in, opened to its owner first where it was closed."""
    with suppress(PermissionError):
        descriptor = os.open(name, _FOLDER, dir_fd=within)
        os.fchmod(descriptor, 0o700)
        return descriptor
    os.chmod(name, 0o700, dir_fd=within)
    return os.open(name, _FOLDER, dir_fd=within)


def _empty_folder(folder: int, top: int, found: deque[str]) -> None:
    """Remove the files of a folder, and bring its folders to the top, where they are found under new names."""
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
        # Where a folder comes to lie is written in itself: one that is closed cannot be moved.
        os.close(_open_folder(name, folder))
        os.rename(name, new, src_dir_fd=folder, dst_dir_fd=top)
    return new
