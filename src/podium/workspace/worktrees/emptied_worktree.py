"""Repair worktrees whose own git files are empty after a power failure.

Podium flushes these files before a worktree is used. They can still be empty if the power failed while the worktree was
being created, or if an earlier version of Podium created it.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from anyio import to_thread

from ...system.owned_files import remove_folder
from ..git.branch import HEADS
from ..git.repository import Checkout, read_git_output
from ..git.snapshot import flush_worktree

LONGEST = 600.0


async def mend_emptied_worktree(checkout: Checkout, lock: int) -> bool:
    """Write the empty git files of a worktree again, and return whether there were any.

    Files in the worktree are not changed.
    """
    if not checkout.path.is_dir() or not checkout.git_dir.is_dir():
        return False
    emptied = await to_thread.run_sync(_write_emptied_files, checkout)
    index = checkout.git_dir / "index"
    if await to_thread.run_sync(_is_empty_file, index):
        await to_thread.run_sync(index.unlink)
        await read_git_output(checkout, "read-tree", "HEAD", timeout=LONGEST, lock=lock)
        emptied = True
    if emptied:
        await flush_worktree(checkout)
    return emptied


def remove_emptied_worktree(path: Path, common: Path) -> None:
    """Remove what is left of a worktree that git started to create at a path, if it lacks what git knows about it.

    A folder that has other files but no trace of git is somebody else's and stays.
    """
    name = re.compile(re.escape(path.name) + r"\d*")
    for own in (common / "worktrees").glob("*"):
        if name.fullmatch(own.name) and not _read_text(own / "gitdir"):
            remove_folder(own)
    if path.is_symlink() or not path.is_dir():
        return
    link = path / ".git"
    target = _read_text(link).removeprefix("gitdir: ")
    if link.is_file() and (not target or Path(target).parent == common / "worktrees"):
        remove_folder(path)
    else:
        with suppress(OSError):  # it is not empty
            path.rmdir()


def _write_emptied_files(checkout: Checkout) -> bool:
    own, link = checkout.git_dir, checkout.path / ".git"
    contents = {
        own / "gitdir": str(link),
        own / "commondir": os.path.relpath(checkout.common_dir, own),
        own / "HEAD": f"ref: {HEADS}{checkout.branch}",
        link: f"gitdir: {own}",
    }
    emptied = [file for file in contents if _is_empty_file(file)]
    for file in emptied:
        file.write_bytes(os.fsencode(contents[file]) + b"\n")
    return bool(emptied)


def _is_empty_file(file: Path) -> bool:
    """Return whether a file is empty. A missing file was never written, or was removed on purpose."""
    with suppress(OSError):
        return not file.is_symlink() and file.is_file() and not file.stat().st_size
    return False


def _read_text(file: Path) -> str:
    try:
        return os.fsdecode(file.read_bytes()).strip("\0\n")
    except OSError:
        return ""
