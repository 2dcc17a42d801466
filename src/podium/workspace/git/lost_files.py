"""Write the files of a worktree again that were lost in a power failure.

Git does not flush the files that it writes to a worktree, but Podium has it flush the index. After a power failure, a
file can therefore be empty or cut off although the index was written after it. Such a file is older than the index and
its content is the beginning of what the index has.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from pathlib import Path

from anyio import to_thread

from .repository import Repository, call_git, read_git_output, split_nul_paths
from .stale_locks import remove_stale_locks

LONGEST = 600.0


async def restore_lost_files(checkout: Repository, *, among: Collection[str] | None = None) -> list[str]:
    """Write the lost files in a checkout again, and return their paths. Raise OutsideFailed if git fails.

    `among` limits this to some paths.
    """
    await to_thread.run_sync(remove_stale_locks, checkout, "")
    changed = await read_git_output(checkout, "diff-files", "--name-only", "-z", timeout=LONGEST)
    if not (paths := split_nul_paths(changed)):
        return []
    staged = await read_git_output(checkout, "ls-files", "-z", "--stage", timeout=LONGEST)
    blobs = {path: facts.split()[1] for facts, _, path in (line.partition("\t") for line in split_nul_paths(staged))}
    lost: list[str] = []
    for path in paths:
        if among is not None and path not in among:
            continue
        if path in blobs and await to_thread.run_sync(_is_older_file, checkout.root / path, checkout.git_dir / "index"):
            done = await call_git(checkout, "cat-file", "blob", blobs[path], timeout=LONGEST)
            if done.code == 0 and await to_thread.run_sync(_is_shortened, checkout.root / path, done.out):
                lost.append(path)
    if lost:
        fed = b"".join(os.fsencode(path) + b"\0" for path in lost)
        told = ("checkout-index", "-f", "-u", "-z", "--stdin")
        await read_git_output(checkout, *told, stdin=fed, timeout=LONGEST)
    return lost


def _is_older_file(file: Path, index: Path) -> bool:
    try:
        found = file.lstat()
        return stat.S_ISREG(found.st_mode) and found.st_mtime_ns <= index.stat().st_mtime_ns
    except OSError:
        return False


def _is_shortened(file: Path, written: bytes) -> bool:
    try:
        return file.stat().st_size < len(written) and written.startswith(file.read_bytes())
    except OSError:
        return False
