"""Create the repository for a run that came from another machine, with the packs of the remote's mirror.

The packs are hard links, so the repository is quick to create and takes up little space. Unlike a clone that borrows
objects, it does not depend on the mirror. Each run has its own repository, so that the branches of two runs never
conflict.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from anyio import to_thread

from ...system.folder_removal import remove_folder
from ...system.private_folder import make_private_folder
from ..git.repository import Repository, read_git_output
from .repository_cache import Mirror
from .run_location import REPOSITORY_FOLDER, run_folder

PARTS = (".pack", ".rev", ".idx")
"""The suffixes of a pack's files, in the order in which the files are linked.

The index comes last, because git uses a pack as soon as its index exists.
"""


async def open_run_clone(mirror: Mirror, run: str, commit: str) -> Repository:
    """Return the repository of a run, and create it if necessary.

    The repository contains all commits in the mirror, and its HEAD points to `commit`.
    """
    folder = run_folder(mirror, run)
    path = folder / REPOSITORY_FOLDER
    async with mirror.hold_lock() as lock:
        if not path.exists():
            await to_thread.run_sync(lambda: make_private_folder(folder))
            await _create_repository(path, mirror.remote.text, lock)
        repository = Repository.at(path)
        await to_thread.run_sync(_link_packs, mirror.path, repository.common_dir)
        await read_git_output(repository, "update-ref", "--no-deref", "HEAD", commit, lock=lock)
    return repository


async def _create_repository(path: Path, remote: str, lock: int) -> None:
    """Create a repository under a temporary name, so that a killed process leaves no partial repository.

    The repository has the same remote as the mirror, so that workers started from it can move to other machines too.
    """
    unfinished = path.with_name(f"{path.name}.new")
    if unfinished.exists():
        await to_thread.run_sync(remove_folder, unfinished)
    init = ("init", "--quiet", "--template=", "--initial-branch=main", "--", str(unfinished))
    await read_git_output(path.parent, *init, lock=lock)
    await read_git_output(unfinished, "config", "remote.origin.url", remote, lock=lock)
    await to_thread.run_sync(unfinished.rename, path)


def _link_packs(mirror: Path, repository: Path) -> None:
    source, target = mirror / "objects" / "pack", repository / "objects" / "pack"
    target.mkdir(parents=True, exist_ok=True)
    for index in source.glob("*.idx"):
        for part in PARTS:
            one, other = index.with_suffix(part), target / f"{index.stem}{part}"
            if one.exists() and not other.exists():
                _link_file(one, other)


def _link_file(source: Path, target: Path) -> None:
    """Link a file, or copy it if it cannot be linked."""
    try:
        os.link(source, target)
    except OSError:
        unfinished = target.with_name(f"tmp_{target.name}")
        shutil.copy2(source, unfinished)
        unfinished.replace(target)
