"""Find Podium's home folder and the repository that contains a folder, and format paths for display."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ..values.errors import Mistake

REPO_MARKERS = (".podium", ".git")


def find_home_folder(environ: Mapping[str, str] = os.environ, given: Path | str | None = None) -> Path:
    """Return Podium's home folder: `given`, or PODIUM_HOME if it is set, or `~/.podium`.

    Raise Mistake if neither `given` nor PODIUM_HOME is set and the user has no home folder.
    """
    if named := given or environ.get("PODIUM_HOME"):
        return Path(named).absolute()
    try:
        return Path.home() / ".podium"
    except RuntimeError as error:
        raise Mistake("this user has no home folder; set PODIUM_HOME to a folder for Podium's own files") from error


def find_repo(start: Path, *, home: Path | None = None) -> Path:
    """Return the nearest folder at or above `start` that contains `.podium` or `.git`, or `start` if there is none.

    Podium's home folder `home` (`~/.podium`) does not make the user's home folder a repository.
    """
    start = start.absolute()
    own = find_home_folder() if home is None else home
    for folder in (start, *start.parents):
        if any(is_repo_marker(folder / mark, own) for mark in REPO_MARKERS):
            return folder
    return start


def is_repo_marker(path: Path, home: Path) -> bool:
    """Return whether `path` exists and is not Podium's home folder."""
    try:
        return path.exists() and not is_same_file(path, home)
    except OSError:  # a path that cannot be checked does not count as a marker
        return False


def format_path(path: Path, *, repo: Path | None = None) -> str:
    """Format `path` for display: relative to the repository, relative to `~`, or in full."""
    text = str(path)
    if repo is not None and path.is_relative_to(repo):
        text = path.relative_to(repo).as_posix()
    elif (own := _find_user_folder()) is not None and path.is_relative_to(own):
        text = f"~/{path.relative_to(own).as_posix()}"
    return escape_file_name(text)


def escape_file_name(name: str) -> str:
    """Return a file name as one line of valid Unicode, whatever bytes the name contains."""
    return os.fsencode(name).decode("utf-8", "backslashreplace").replace("\n", "\\n")


def is_inside(path: Path, root: Path) -> bool:
    """Return whether `path` is inside `root` after all symbolic links are resolved. Return False for a symlink loop."""
    try:
        return path.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError):  # before Python 3.13, pathlib raises RuntimeError for a symlink loop
        return False


def is_same_file(path: Path, other: Path) -> bool:
    """Return whether both paths refer to the same existing file or folder."""
    try:
        return path.samefile(other)
    except OSError:
        return False


def _find_user_folder() -> Path | None:
    """Return the user's home folder, or None if there is none."""
    try:
        return Path.home()
    except RuntimeError:
        return None
