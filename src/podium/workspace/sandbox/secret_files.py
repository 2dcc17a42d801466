"""Secret files in a checkout: untracked files whose names suggest secrets.

Tracked files are not secret to anybody who can read the repository, and tests need their certificates.
"""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path

from anyio import to_thread

from ...policy.path_rules import is_sensitive
from ...values.errors import OutsideFailed
from ..git.repository import call_git

MOST = 20_000
"""The most files that are examined, those closest to the root first."""
LEFT_OUT = frozenset((".git", ".podium", "node_modules", "__pycache__", ".tox", ".nox", ".mypy_cache", ".ruff_cache"))


async def find_secrets(checkout: Path) -> tuple[str, ...]:
    """Return the paths of secret files, relative to the checkout; a folder includes everything in it."""
    found = await to_thread.run_sync(_find_sensitive_paths, checkout)
    if not found:
        return ()
    kept = await _list_tracked_paths(checkout, found)
    return tuple(path for path in found if not any(one == path or one.startswith(f"{path}/") for one in kept))


def _find_sensitive_paths(checkout: Path) -> list[str]:
    found: list[str] = []
    folders = deque((checkout,))
    seen = 0
    while folders and seen < MOST:
        folder = folders.popleft()
        try:
            entries = list(os.scandir(folder))
        except OSError:
            continue
        # Files in a virtual environment came from packages.
        if any(entry.name == "pyvenv.cfg" for entry in entries):
            continue
        for entry in entries:
            seen += 1
            path = Path(entry.path).relative_to(checkout).as_posix() if folder != checkout else entry.name
            if entry.name in LEFT_OUT or entry.is_symlink():
                continue
            if is_sensitive(path):
                found.append(path)
            elif entry.is_dir(follow_symlinks=False):
                folders.append(Path(entry.path))
    return sorted(found)


async def _list_tracked_paths(checkout: Path, paths: list[str]) -> list[str]:
    literally = [f":(literal){path}" for path in paths]
    try:
        done = await call_git(checkout, "ls-files", "-z", "--cached", "--", *literally)
    except OutsideFailed:
        return []
    return done.out.decode(errors="replace").split("\0") if done.code == 0 else []
