"""Places: the repository that a folder belongs to, the person's own folder, and how paths are shown."""

from __future__ import annotations

import os
from pathlib import Path

from ..values.errors import Mistake

REPO_MARKERS = (".podium", ".git")


def find_user_home() -> Path:
    """The person's own folder: PODIUM_HOME where that is set, else `~/.podium`."""
    if named := os.environ.get("PODIUM_HOME"):
        return Path(named)
    try:
        return Path.home() / ".podium"
    except RuntimeError as error:
        raise Mistake("this user has no home folder; set PODIUM_HOME to a folder for Podium's own files") from error


def find_repo(start: Path, *, home: Path | None = None) -> Path:
    """The nearest folder upwards from `start` that has `.podium` or `.git`; `start` itself where there is none.

    The person's own folder `home` does not make their home folder a repository.
    """
    start = start.absolute()
    own = find_user_home() if home is None else home
    for folder in (start, *start.parents):
        if any(is_repo_marker(folder / mark, own) for mark in REPO_MARKERS):
            return folder
    return start


def is_repo_marker(path: Path, home: Path) -> bool:
    """Whether `path` exists and is not the person's own folder."""
    try:
        return path.exists() and not is_same_file(path, home)
    except OSError:  # a folder that may not be looked into marks nothing
        return False


def format_path(path: Path, *, repo: Path | None = None) -> str:
    """`path` as people read it: from the repository, from `~`, or in full."""
    text = str(path)
    if repo is not None and path.is_relative_to(repo):
        text = path.relative_to(repo).as_posix()
    elif (own := _find_home_folder()) is not None and path.is_relative_to(own):
        text = f"~/{path.relative_to(own).as_posix()}"
    return escape_file_name(text)


def escape_file_name(name: str) -> str:
    """A file's name as one line of text, whatever bytes it has."""
    return os.fsencode(name).decode("utf-8", "backslashreplace").replace("\n", "\\n")


def is_inside(path: Path, root: Path) -> bool:
    """Whether `path` leads to somewhere in `root` after all links are followed; a loop leads nowhere."""
    try:
        return path.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError):  # pathlib tells a loop by a RuntimeError before Python 3.13
        return False


def is_same_file(path: Path, other: Path) -> bool:
    """Whether both exist and are one place."""
    try:
        return path.samefile(other)
    except OSError:
        return False


def _find_home_folder() -> Path | None:
    """The user's home folder, where they have one."""
    try:
        return Path.home()
    except RuntimeError:
        return None
