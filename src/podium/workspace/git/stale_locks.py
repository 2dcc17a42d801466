"""Find out whether a lock file of git was left behind by a git process that was killed, and remove such files.

Git locks a file by creating `NAME.lock` next to it. While git waits for a person's editor, nobody has the lock file
open. A lock is therefore only left behind if, in addition, no git process works in the folders that it is about. A
system without /proc does not tell that; there, no lock is removed.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from .repository import Checkout, Repository, root_folder

HEADS = "refs/heads/"


def remove_stale_locks(place: Repository | Checkout, branch: str) -> None:
    """Remove the locks that killed processes left on a checkout's index and HEAD and on its branch."""
    for name in ("index.lock", "HEAD.lock"):
        _remove_if_abandoned(place.git_dir / name, (root_folder(place), place.git_dir))
    remove_stale_branch_lock(place, branch)


def remove_stale_branch_lock(place: Repository | Checkout, branch: str) -> None:
    """Remove the lock that a killed process left on a branch."""
    if branch:
        _remove_if_abandoned(place.common_dir / f"{HEADS}{branch}.lock", _list_worktree_folders(place.common_dir))


def _remove_if_abandoned(lock: Path, folders: Collection[Path]) -> None:
    """Remove a lock if nobody has it open and no git process works in these folders."""
    with suppress(OSError):  # there is no such lock, or the system does not tell who uses it
        found = lock.lstat()
        if found.st_uid == os.geteuid() and not _is_in_use(found, folders):
            lock.unlink()


def _list_worktree_folders(common: Path) -> list[Path]:
    """Return a repository's shared git directory, the folder that contains it, and the folders of its worktrees."""
    folders = [common, common.parent]
    for file in common.glob("worktrees/*/gitdir"):
        with suppress(OSError):
            folders.append(Path(os.fsdecode(file.read_bytes()).removesuffix("\n")).parent)
    return folders


def _is_in_use(lock: os.stat_result, folders: Collection[Path]) -> bool:
    places = {folder.resolve() for folder in folders}
    return any(_has_open(process, lock) or _is_git_in(process, places) for process in _list_processes())


def _list_processes() -> Iterator[Path]:
    """Return the folders of all processes in /proc. Raise OSError if the system does not list them."""
    if not Path("/proc/self/fd").is_dir():
        raise OSError("this system has no /proc")
    return Path("/proc").glob("[0-9]*")


def _has_open(process: Path, lock: os.stat_result) -> bool:
    with suppress(OSError):  # the process has exited or belongs to another user
        for descriptor in (process / "fd").iterdir():
            with suppress(OSError):
                found = descriptor.stat()
                if (found.st_dev, found.st_ino) == (lock.st_dev, lock.st_ino):
                    return True
    return False


def _is_git_in(process: Path, folders: set[Path]) -> bool:
    """Return whether a process is git and works in one of these folders or below."""
    try:
        if not (process / "comm").read_text(errors="replace").startswith("git"):
            return False
        # The lock belongs to this user, so only a process of this user or of root can have made it.
        if process.stat().st_uid not in (os.geteuid(), 0) or _is_zombie(process):
            return False
        directory = (process / "cwd").readlink()
    except PermissionError:
        return True
    except OSError:
        return False
    return any(directory.is_relative_to(folder) for folder in folders)


def _is_zombie(process: Path) -> bool:
    return (process / "stat").read_text(errors="replace").rpartition(")")[2].split()[0] in "ZX"
