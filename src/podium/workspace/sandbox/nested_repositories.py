"""Disable the git repositories that a command creates, by moving their `.git` or `HEAD` elsewhere, and report them.

Git runs programs that a repository's configuration specifies. So a repository that a command created could run
programs as soon as the user, or the user's shell prompt, runs git in it. After each command, the folders that have
changed are examined, and everything in the folders that a command has created. A command cannot hide a change, because
the kernel sets a folder's change time. It cannot hide a repository among other folders either: new folders that cannot
be searched are moved aside as a whole.
"""

from __future__ import annotations

import os
import secrets
import stat
import time
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from ...system.owned_files import make_private_folder
from ...values.errors import Mistake
from ...values.plain_text import escape_unprintable
from ..git.repository import Repository

MOST_NEW = 200_000
"""The maximum number of new folders to examine after a command. If there are more, the rest are moved aside."""
MOST_TOLD = 8
UNSURE_FOR = 50_000_000
"""For this many nanoseconds after a change, a folder can change again without getting a new timestamp."""

OTHER_REPOSITORIES = {".hg": "Mercurial", ".jj": "Jujutsu", ".sl": "Sapling"}
"""Folders that make other programs take the folder around them for a repository, with the names of these programs."""

FolderState = tuple[int, int]
"""The inode of a folder and the time of its last change."""
UNSURE: FolderState = (0, 0)

Identity = tuple[int, int]
"""The identity of a file or folder: its inode and the time of its last change (0 for a folder).

If the file or folder is replaced, the new one has a different identity.
"""


def read_folder_state(folder: str) -> FolderState:
    """Return the state of a folder, or UNSURE if it has just changed, is a link or cannot be read."""
    try:
        found = os.lstat(folder)
    except OSError:
        return UNSURE
    is_settled = time.time_ns() - found.st_ctime_ns > UNSURE_FOR
    return (found.st_ino, found.st_ctime_ns) if is_settled and stat.S_ISDIR(found.st_mode) else UNSURE


def identify(place: str) -> Identity | None:
    """Return the identity of the file or folder at a path, or None if the path no longer exists."""
    try:
        found = os.lstat(place)
    except OSError:
        return None
    return found.st_ino, 0 if stat.S_ISDIR(found.st_mode) else found.st_ctime_ns


def is_git_shaped(names: Iterable[str]) -> bool:
    """Return whether git would use a folder with these entries as a git directory."""
    # Lower case, because a file system may ignore case.
    found = {name.lower() for name in names}
    return "head" in found and ("commondir" in found or {"objects", "refs"} <= found)


def is_bare_repository(folder: Path) -> bool:
    """Return whether git uses the folder itself as a git directory, because it has no `.git` that git can use."""
    with suppress(OSError):
        return is_git_shaped(os.listdir(folder)) and not _has_git_data(folder)  # noqa: PTH208 - only names are needed
    return False


def list_existing(checkout: Path, names: Iterable[str]) -> list[str]:
    """Return those of these paths of a checkout that exist.

    Listing the checkout once takes less time than looking for each name. A file system may ignore case.
    """
    try:
        there = {name.casefold() for name in os.listdir(checkout)}  # noqa: PTH208 - only names are needed
    except OSError:
        return [name for name in names if os.path.lexists(f"{checkout}/{name}")]
    likely = (name for name in names if name.partition("/")[0].casefold() in there)
    return [name for name in likely if os.path.lexists(f"{checkout}/{name}")]


def find_bare_repository(checkout: Path, path: str) -> str:
    """Return the folder that git uses as a git directory once a file exists at a path of a checkout; otherwise "".

    The path and the folder are relative to the checkout. Only the folders above the file are considered.
    """
    parts = path.split("/")
    for size, name in enumerate(parts):
        folder = checkout.joinpath(*parts[:size])
        names = {name}
        with suppress(OSError):
            names.update(os.listdir(folder))  # noqa: PTH208 - only names are needed
        if is_git_shaped(names) and (size or not _has_git_data(checkout)):
            return "/".join(parts[:size]) or "."
    return ""


def _has_git_data(folder: Path) -> bool:
    with suppress(OSError):
        return is_git_shaped(os.listdir(folder / ".git"))  # noqa: PTH208 - only names are needed
    return (folder / ".git").is_file()


class NestedRepositories:
    """Finds the repositories that commands create in a checkout, and moves their `.git` or `HEAD` to `aside`.

    The checkout itself counts, too, unless its `.git` already makes it a repository. `folders` maps each folder that
    existed before the first command to its state. `unexamined` maps each path that was not examined to its identity.
    These paths are ignored unless a command replaces the file or folder there. After `most_new` new folders, the rest
    are moved aside without being searched.
    """

    def __init__(
        self,
        checkout: Path,
        *,
        aside: Path,
        folders: Mapping[str, FolderState],
        unexamined: Mapping[str, Identity],
        most_new: int = MOST_NEW,
    ) -> None:
        self._checkout = checkout
        self._aside = aside
        self._folders = dict(folders)
        self._unexamined = unexamined
        self._most_new = most_new
        self._closed: set[str] = set()
        """The closed folders that contain what was moved aside without being searched."""

    def move_aside(self) -> list[str]:
        """Disable the git repositories that commands have created, and return messages about them.

        There is one message for each of the first MOST_TOLD repositories, and one message for all others.
        """
        told = self._move_new_repositories()
        if (rest := len(told) - MOST_TOLD) > 0:
            moved = (
                f"{rest} more repositories were found; where possible, they were moved to {self._aside} "
                "or to a new folder next to their old path"
            )
            return [*told[:MOST_TOLD], moved]
        return told

    def move_created(self, names: Iterable[str]) -> list[str]:
        """Move aside those of these files and folders of the checkout that exist, and return messages about them."""
        told: list[str] = []
        for place in (self._checkout / name for name in list_existing(self._checkout, names)):
            # A folder above it can be a link to another folder of the checkout.
            place = Path(os.path.realpath(place.parent)) / place.name
            if not os.path.lexists(place) or not place.is_relative_to(self._checkout):
                continue
            path = self._format(place)
            try:
                moved = self._move_aside(place, is_searched=False)
            except OSError as error:
                told.append(f"{path} is protected, but a command created it, and it cannot be moved: {error.strerror}")
                continue
            if moved is not None:
                why = "because it is protected, and a command created it; use write_file, which asks the user"
                told.append(f"{path} was moved to {_format_path(moved)}, {why}")
        return told

    def restore_links(self, targets: Mapping[str, str]) -> list[str]:
        """Restore the links of the checkout that a command has replaced, and return messages about them."""
        told: list[str] = []
        for name, target in targets.items():
            place = self._checkout / name
            if place.is_symlink() and str(place.readlink()) == target:
                continue
            try:
                if os.path.lexists(place):
                    self._move_aside(place, is_searched=False)
                parent = _open_without_links(self._checkout, place.parent)
                try:
                    os.symlink(target, place.name, dir_fd=parent)
                finally:
                    os.close(parent)
            except OSError as error:
                told.append(f"{self._format(place)} leads to programs, and cannot be restored: {error.strerror}")
                continue
            told.append(f"{self._format(place)} leads to programs, and was restored, because a command changed it")
        return told

    def _move_new_repositories(self) -> list[str]:
        told: list[str] = []
        # Each folder comes with the outermost new folder that contains it, or None if the folder is not new.
        queue: deque[tuple[str, str | None]] = deque((folder, None) for folder in self._list_changed())
        unsearched: dict[str, None] = {}
        examined = 0
        while queue:
            folder, newest = queue.popleft()
            examined += newest is not None
            if newest is not None and (examined > self._most_new or newest in unsearched):
                unsearched[newest] = None
                continue
            state = read_folder_state(folder)
            entries = self._list_entries(folder)
            if entries is None:
                told += [] if newest else [f"{self._format(folder)} cannot be searched for repositories"]
                unsearched |= {newest: None} if newest else {}
                continue
            self._folders[folder] = state
            if marker := self._find_marker(folder, entries):
                self._folders[folder] = UNSURE
                told += self._move_marker(marker)
            queue.extend((new, newest or new) for new in self._list_new_folders(folder, entries))
        return [*self._move_unsearched(unsearched), *told]

    def _move_unsearched(self, folders: Iterable[str]) -> list[str]:
        """Move new folders that could not be searched for repositories out of the checkout."""
        moved: list[Path] = []
        told: list[str] = []
        for folder in map(Path, folders):
            try:
                moved += [folder] if self._move_aside(folder, is_searched=False) is not None else []
            except OSError as error:
                told.append(f"{self._format(folder)} cannot be searched for repositories or moved: {error.strerror}")
        if not moved:
            return told
        names = ", ".join(self._format(folder) for folder in moved[:MOST_TOLD])
        names += f" and {len(moved) - MOST_TOLD} more folders" if len(moved) > MOST_TOLD else ""
        why = "because there are too many new folders, or folders that cannot be listed"
        where = f"moved to {self._aside} or to a closed folder next to the old path"
        return [f"{names} could not be searched for git repositories, {why}; {where}", *told]

    def _list_changed(self) -> list[str]:
        """Return the known folders that have changed, and forget the folders that no longer exist."""
        changed: list[str] = []
        gone: list[str] = []
        lstat, is_folder = os.lstat, stat.S_ISDIR
        for folder, known in self._folders.items():
            try:
                found = lstat(folder)
            except OSError:
                gone.append(folder)
                continue
            if (found.st_ino, found.st_ctime_ns) != known:
                (changed if is_folder(found.st_mode) else gone).append(folder)
        for folder in gone:
            del self._folders[folder]
        return changed

    def _list_entries(self, folder: str) -> dict[str, bool] | None:
        """Return the names in a folder, and whether each is a folder. Return None if the folder cannot be read.

        If a command made the folder inaccessible, restore the owner's permissions first.
        """
        for attempt in (1, 2):
            try:
                return {entry.name: entry.is_dir(follow_symlinks=False) for entry in os.scandir(folder)}
            except PermissionError:
                if attempt == 1:
                    _allow_owner(folder)
            except (FileNotFoundError, NotADirectoryError):
                return {}
            except OSError:  # for example, because its path is too long
                break
        return None

    def _list_new_folders(self, folder: str, entries: Mapping[str, bool]) -> list[str]:
        places = (f"{folder}/{name}" for name, is_folder in entries.items() if is_folder)
        return [place for place in places if place not in self._folders and not self._is_left_alone(place)]

    def _find_marker(self, folder: str, entries: Mapping[str, bool]) -> Path | None:
        """Return the path that makes git treat a folder as a repository, or None if the folder is not a repository."""
        place = Path(folder)
        is_top = place == self._checkout
        for name, is_folder in entries.items():
            # A `.git` folder is examined separately: git does not treat an empty one as a repository.
            is_marker = name.lower() == ".git" and not is_folder and not (is_top and name == ".git")
            if is_marker and not self._is_left_alone(f"{folder}/{name}"):
                return None if self._is_our_own(place) else place / name
            if name.lower() in OTHER_REPOSITORIES and not is_top and not self._is_left_alone(f"{folder}/{name}"):
                return place / name
        if not is_git_shaped(entries) or (is_top and _has_git_data(place)):
            return None
        return place if place.name.lower() == ".git" else next(place / one for one in entries if one.lower() == "head")

    def _is_left_alone(self, place: str) -> bool:
        if place in self._closed:
            return _is_closed(place)
        return place in self._unexamined and self._unexamined[place] == identify(place)

    def _is_our_own(self, folder: Path) -> bool:
        """Return whether a folder is a worktree or a submodule of the checkout's repository."""
        with suppress(Mistake, OSError):
            found, own = Repository.at(folder), Repository.at(self._checkout)
            return found.root == folder and found.common_dir.is_relative_to(own.common_dir)
        return False

    def _move_marker(self, marker: Path) -> list[str]:
        path = self._format(marker)
        try:
            place = self._move_aside(marker)
        except OSError as error:
            return [f"{path} makes its folder a repository, but could not be moved away: {error.strerror}"]
        if place is None:
            return []
        program = OTHER_REPOSITORIES.get(marker.name.lower(), "git")
        return [
            f"{path} was moved to {_format_path(place)}, because it made {program} treat its folder as a repository, "
            f"and {program} can run programs that are named in a repository's configuration"
        ]

    def _format(self, place: str | Path) -> str:
        return _format_path(Path(place).relative_to(self._checkout))

    def _move_aside(self, marker: Path, *, is_searched: bool = True) -> Path | None:
        """Move a file or folder aside and return its new path, or None if it no longer exists."""
        try:
            parent = _open_without_links(self._checkout, marker.parent)
        except OSError:  # the folder no longer exists, or a folder above it has become a link
            return None
        try:
            return self._rename(parent, marker, is_searched=is_searched)
        finally:
            os.close(parent)

    def _rename(self, parent: int, marker: Path, *, is_searched: bool) -> Path:
        """Move `marker` into `aside`, and return its new path.

        If that fails, for example because `aside` is on another file system, move `marker` into a new folder next to
        its old path, and return the path of that folder. If what is moved was not searched, close the new folder.
        """
        token = secrets.token_hex(4)
        label = _format_path(marker.relative_to(self._checkout)).replace("/", "-")[-40:]
        target = self._aside / f"{time.strftime('%Y%m%d-%H%M%S')}-{token}-{label}"
        make_private_folder(self._aside)
        _allow_owner(f"/proc/self/fd/{parent}/.")
        _allow_owner(f"/proc/self/fd/{parent}/{marker.name}")
        try:
            os.rename(marker.name, target, src_dir_fd=parent)
        except OSError:
            holder = f"set-aside-{token}"
            _rename_in_place(parent, marker.name, holder)
            if not is_searched:
                os.chmod(holder, 0, dir_fd=parent)
                self._closed.add(str(marker.parent / holder))
            return marker.parent / holder
        return target


def _format_path(path: Path) -> str:
    """Return a path as a string that is safe to print and store. A command chose the path, so it is not trusted."""
    return escape_unprintable(os.fsencode(path).decode("utf-8", "backslashreplace"))


def _rename_in_place(parent: int, name: str, holder: str) -> None:
    """Move a file or folder into a new folder next to its old path, where git does not treat it as a repository."""
    os.mkdir(holder, 0o700, dir_fd=parent)
    inside = os.open(holder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        os.rename(name, "content", src_dir_fd=parent, dst_dir_fd=inside)
        with suppress(OSError):
            os.rename("content/HEAD", "content/HEAD.set-aside", src_dir_fd=inside, dst_dir_fd=inside)
    finally:
        os.close(inside)


def _open_without_links(top: Path, folder: Path) -> int:
    """Open a folder below `top` without following links. Raise OSError if that fails."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(top, flags)
    for name in folder.relative_to(top).parts:
        above = descriptor
        try:
            descriptor = os.open(name, flags, dir_fd=above)
        finally:
            os.close(above)
    return descriptor


def _is_closed(folder: str) -> bool:
    with suppress(OSError):
        return not stat.S_IMODE(os.lstat(folder).st_mode)
    return False


def _allow_owner(folder: str) -> None:
    """Give the owner full access to a folder. A link is not followed."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            place = f"/proc/self/fd/{descriptor}"
            os.chmod(place, stat.S_IMODE(os.stat(place).st_mode) | stat.S_IRWXU)  # noqa: PTH101, PTH116
        finally:
            os.close(descriptor)
