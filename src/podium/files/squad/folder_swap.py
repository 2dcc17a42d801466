"""Replace or delete a folder atomically, so that readers never see a partly changed folder.

The new folder is built next to the old one from hard links to the same files, so unchanged files
are not copied. The two folders are then exchanged in one step or, if the system cannot do that, with renames.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .squad_folder import BACKUP_SUFFIX

SAVING_SUFFIX = ".saving"

_RENAME_EXCHANGE = 2
_AT_FDCWD = -100


@contextmanager
def lock_squads(repo: Path) -> Iterator[None]:
    """Hold the lock for saving squads in this repository. On Windows there is no such lock."""
    handle = os.open(repo, os.O_RDONLY | os.O_CLOEXEC) if os.name == "posix" else None
    try:
        if handle is not None:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        if handle is not None:
            os.close(handle)


@contextmanager
def replace_folder(target: Path, base: Path | None) -> Iterator[Path]:
    """Yield a copy of `base`, or an empty folder if it is None. If the block succeeds, the copy replaces `target`."""
    new, before = (target.with_name(f"{target.name}{end}") for end in (SAVING_SUFFIX, BACKUP_SUFFIX))
    if before.is_dir():
        if target.exists():
            shutil.rmtree(before)
        else:
            before.rename(target)
    if new.exists():
        shutil.rmtree(new)
    try:
        seen = _copy_folder(base, new) if base is not None else {}
        new.mkdir(exist_ok=True)
        yield new
        _sync_tree(new)
        _swap_folders(new, target, before)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    if new.is_dir():  # `new` now contains the old content of `target`
        _move_late_files(new, target, seen)
        shutil.rmtree(new, ignore_errors=True)


def delete_folder(folder: Path) -> None:
    """Delete a folder atomically. The folder is renamed first, so readers never see a partly deleted folder."""
    gone = folder.with_name(f"{folder.name}{SAVING_SUFFIX}")
    if gone.exists():
        shutil.rmtree(gone)
    folder.rename(gone)
    shutil.rmtree(gone)


def _copy_folder(old: Path, new: Path) -> dict[str, int]:
    """Create `new` with the same files as `old`. Return the files' inode numbers, keyed by path in the folder."""
    seen: dict[str, int] = {}
    made: list[tuple[str, Path]] = []
    for place, folders, names in os.walk(old, onerror=_raise_error):
        here = new / Path(place).relative_to(old)
        here.mkdir()
        made.append((place, here))
        for name in (*names, *(name for name in folders if (Path(place) / name).is_symlink())):
            source = Path(place) / name
            _link_or_copy(source, here / name)
            seen[str(source.relative_to(old))] = source.lstat().st_ino
    for place, here in made:
        shutil.copystat(place, here)
    return seen


def _raise_error(error: OSError) -> None:
    """Raise the error. If it were ignored, a folder that cannot be listed would be missing from the copy."""
    raise error


def _link_or_copy(source: Path, copy: Path) -> None:
    """Hard-link a file, or copy it if hard links are not supported."""
    try:
        os.link(source, copy, follow_symlinks=False)
    except (OSError, NotImplementedError):
        shutil.copy2(source, copy, follow_symlinks=False)


def write_new_file(path: Path, text: str) -> None:
    """Write `text` to `path`, always as a new file.

    An existing file is replaced, not changed in place, because it may be a hard link to a file in the old folder.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.urandom(6).hex()}")
    with fresh.open("x", encoding="utf-8", newline="") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    if path.is_file() and not path.is_symlink():
        shutil.copymode(path, fresh)
    fresh.replace(path)


def _sync_tree(new: Path) -> None:
    """Flush `new` and all directories below it to disk, so that file names survive a crash."""
    if os.name == "posix":
        for place, _, _ in os.walk(new):
            _sync_folder(Path(place))


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _swap_folders(new: Path, target: Path, before: Path) -> None:
    """Exchange `new` and `target`, so that the old folder is at `new`. If there is no `target`, rename `new`."""
    if not target.exists():
        new.rename(target)
    elif not _exchange_folders(new, target):
        # Not atomic: after a crash between the renames, the old folder is found at `before`.
        target.rename(before)
        new.rename(target)
        before.rename(new)
    if os.name == "posix":
        _sync_folder(target.parent)


def _exchange_folders(one: Path, other: Path) -> bool:
    """Exchange two folders atomically. Return False if the system cannot do that."""
    import ctypes  # imported here to keep start-up fast: needed only by this function

    try:
        system = ctypes.CDLL(None, use_errno=True)
        here, there = os.fsencode(one), os.fsencode(other)
        if hasattr(system, "renameat2"):
            return bool(system.renameat2(_AT_FDCWD, here, _AT_FDCWD, there, _RENAME_EXCHANGE) == 0)
        return bool(system.renamex_np(here, there, _RENAME_EXCHANGE) == 0)
    except (AttributeError, OSError, TypeError):
        return False


def _move_late_files(old: Path, target: Path, seen: dict[str, int]) -> None:
    """Find files that another program wrote to the old folder during the save, and move them to the new folder.

    Files that this save has written are not replaced.
    """
    for place, _, names in os.walk(old):
        for name in names:
            path = Path(place) / name
            there, number = target / path.relative_to(old), seen.get(str(path.relative_to(old)))
            is_ours = os.path.lexists(there) and there.lstat().st_ino != number
            if path.lstat().st_ino != number and not is_ours:
                there.parent.mkdir(parents=True, exist_ok=True)
                path.replace(there)
