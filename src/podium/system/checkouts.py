"""Tell whether a path leads into a checkout, whose files agents' commands can change.

A path leads into a checkout if it is inside one, or if following its symbolic links passes through one: whoever can
write in that folder chooses which file the path means. Folders are compared by identity as well as by name, so that a
bind mount or a file system that ignores case gives a checkout no second name.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import unquote

from .whole_file import UnreadableFile, read_file_bytes

MOST_LINKS = 40
MOST_WORKTREES = 1000
LONGEST_PATH = 4096
LONGEST_WORD = 8 * 1024
MOST_SLASHES = 500
"""Words with more letters or slashes count as leading into a checkout: the paths in them are not examined."""
MOST_MATCHES = 1000
MOST_PATTERNS = 20
MOST_PATTERN_PARTS = 50
"""A pattern that matches more paths or has more parts counts as leading into a checkout, and so do more patterns."""

_SEPARATORS = re.compile(r"[\s:;,=|&<>()'\"`]")
_QUOTES = re.compile(r"['\"\\]")
_USER_FOLDER = re.compile(r"~[\w.-]*(?=[/\s;&|)]|$)")
_BRACES = re.compile(r"\{[^{}]*\}")
_PATTERN = re.compile(r"[*?\[]")
_VARIABLE = re.compile(r"\$(?:\{(\w+)[^{}]*\}|(\w+))")


@dataclass(frozen=True, slots=True)
class Checkouts:
    """The checkouts of a run, by their real paths. Create it with `find_checkouts`."""

    folders: tuple[str, ...] = ()
    identities: frozenset[tuple[int, int]] = frozenset()

    def contain(self, path: str | Path) -> bool:
        """Return whether an absolute path is in a checkout, or reaches its file through one."""
        if not self.folders:
            return False
        # Some programs remove ".." from a path before they open it, others leave that to the system.
        spellings = dict.fromkeys((os.fspath(path), os.path.normpath(path)))
        return any(self._is_inside(visited) for one in spellings for visited in _iter_visited(one))

    def list_named(self, word: str, variables: Mapping[str, str] | None = None) -> tuple[str, ...]:
        """Return the paths in a word of a command line that lead into a checkout.

        A word can contain a path after an option (`-r/src/a.js`, `--file=/src/a.py`), a scheme (`file:///src/a.js`) or
        other text, and a shell command can contain several. `variables` are replaced as a shell replaces them. A path
        with a pattern (`/src/*/a.py`) stands for the paths that match it.
        """
        if not self.folders:
            return ()
        words = _list_readings(word, variables or {})
        if any(len(one) > LONGEST_WORD or one.count("/") > MOST_SLASHES for one in words):
            return (word[:100],)
        found = dict.fromkeys(path for one in words for path in _iter_paths(one))
        inside = tuple(path for path in found if self.contain(path))
        patterns = [path for path in found if _PATTERN.search(path)]
        if inside or not patterns:
            return inside
        if len(patterns) > MOST_PATTERNS:
            return (word[:100],)
        return tuple(path for path in patterns if self._is_matched(path))

    def list_above(self, word: str, variables: Mapping[str, str] | None = None) -> tuple[str, ...]:
        """Return the paths in a word of a command line that name a folder above a checkout."""
        words = _list_readings(word, variables or {})
        if any(len(one) > LONGEST_WORD or one.count("/") > MOST_SLASHES for one in words):
            return ()
        found = dict.fromkeys(path for one in words for path in _iter_paths(one))
        return tuple(path for path in found if self._is_above(path))

    def _is_above(self, path: str) -> bool:
        try:
            real = os.path.realpath(path).rstrip(os.sep)
        except (OSError, ValueError):
            return False
        return any(folder.startswith(f"{real}{os.sep}") for folder in self.folders)

    def _is_matched(self, pattern: str) -> bool:
        """Return whether a path that matches a pattern leads into a checkout."""
        parts = [part for part in pattern.split("/") if part]
        if len(parts) > MOST_PATTERN_PARTS:
            return True
        found = [""]
        for part in parts:
            if not _PATTERN.search(part):
                found = [f"{above}/{part}" for above in found]
                continue
            found = [f"{above}/{name}" for above in found for name in _list_names(above) if fnmatchcase(name, part)]
            if len(found) > MOST_MATCHES:
                return True
        return any(map(self.contain, found))

    def _is_inside(self, path: str) -> bool:
        if any(path == folder or path.startswith(f"{folder.rstrip(os.sep)}{os.sep}") for folder in self.folders):
            return True
        try:
            status = os.lstat(path)
        except (OSError, ValueError):
            return False
        return (status.st_dev, status.st_ino) in self.identities


def find_checkouts(*folders: str | Path | None) -> Checkouts:
    """Return these checkouts, with the other worktrees of their repositories. None stands for no folder."""
    found: dict[str, None] = {}
    for folder in [one for one in folders if one is not None]:
        own = os.path.realpath(os.fspath(folder))
        found.update(dict.fromkeys((own, *_iter_sibling_worktrees(own))))
    return Checkouts(tuple(found), frozenset(_iter_identities(found)))


def _iter_identities(folders: dict[str, None]) -> Iterator[tuple[int, int]]:
    for folder in folders:
        try:
            status = os.stat(folder)  # noqa: PTH116 - plain text
        except (OSError, ValueError):
            continue
        yield status.st_dev, status.st_ino


def _iter_sibling_worktrees(folder: str) -> Iterator[str]:
    """Yield the real paths of the main worktree and the linked worktrees of a checkout's repository."""
    git_dir = os.path.join(folder, ".git")  # noqa: PTH118 - plain text
    if pointer := _read_pointer(git_dir, "gitdir: "):
        git_dir = os.path.realpath(os.path.join(folder, pointer))  # noqa: PTH118
    if common := _read_pointer(os.path.join(git_dir, "commondir")):  # noqa: PTH118
        git_dir = os.path.realpath(os.path.join(git_dir, common))  # noqa: PTH118
    if os.path.basename(git_dir) == ".git" and os.path.isdir(git_dir):  # noqa: PTH112, PTH119
        yield os.path.realpath(os.path.dirname(git_dir))  # noqa: PTH120
    try:
        names = os.listdir(os.path.join(git_dir, "worktrees"))[:MOST_WORKTREES]  # noqa: PTH118, PTH208
    except OSError:
        return
    for name in names:
        if pointer := _read_pointer(os.path.join(git_dir, "worktrees", name, "gitdir")):  # noqa: PTH118
            yield os.path.realpath(os.path.dirname(os.path.join(git_dir, "worktrees", name, pointer)))  # noqa: PTH118, PTH120


def _read_pointer(path: str, beginning: str = "") -> str:
    """Return the path in a file with which git points to another folder, or "" if there is no such file."""
    try:
        text = os.fsdecode(read_file_bytes(Path(path)))
    except (UnreadableFile, ValueError):
        return ""
    first = text.partition("\n")[0].rstrip("\r")
    return first.removeprefix(beginning) if first.startswith(beginning) and "\0" not in first else ""


def _iter_visited(path: str) -> Iterator[str]:
    """Yield every path that the system visits to find a file: each folder, each link and the file itself."""
    current, links = os.sep, 0
    pending = _split_path(path)
    yield current
    while pending:
        part = pending.pop()
        if part == "..":
            current = os.path.dirname(current)  # noqa: PTH120 - plain text
            continue
        current = f"{current.rstrip(os.sep)}{os.sep}{part}"
        yield current
        try:
            target = os.readlink(current)  # noqa: PTH115 - plain text
        except ValueError:
            return
        except OSError as error:
            if error.errno == errno.EINVAL:  # not a link
                continue
            return
        links += 1
        if links > MOST_LINKS:
            return  # the system cannot open such a path either
        current = os.sep if target.startswith(os.sep) else os.path.dirname(current)  # noqa: PTH120 - plain text
        pending += _split_path(target)


def _split_path(path: str) -> list[str]:
    """Return the parts of a path, last part first."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]


def _list_readings(word: str, variables: Mapping[str, str]) -> tuple[str, ...]:
    """Return a word as it is, and as a shell or a program that reads URLs may read it."""
    expanded = _expand_word(word, variables)
    patterns = _BRACES.sub("*", expanded)
    return tuple(dict.fromkeys((word, expanded, patterns, unquote(expanded))))


def _list_names(folder: str) -> list[str]:
    try:
        return os.listdir(folder or os.sep)  # noqa: PTH208 - plain text
    except (OSError, ValueError):
        return []


def _expand_word(word: str, variables: Mapping[str, str]) -> str:
    """Return a word without its quotes, and with home folders and variables replaced by their values."""

    def find_value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        return variables.get(name, os.path.expanduser("~") if name == "HOME" else match[0])  # noqa: PTH111 - plain text

    plain = _VARIABLE.sub(find_value, _QUOTES.sub("", word))
    return _USER_FOLDER.sub(lambda match: os.path.expanduser(match[0]), plain)  # noqa: PTH111 - plain text


def _iter_paths(word: str) -> Iterator[str]:
    """Yield every absolute path that a word may contain: from each slash, to the next separator or to the end."""
    for match in re.finditer(r"/+", word):
        rest = word[match.end() - 1 :][:LONGEST_PATH]
        first = _SEPARATORS.split(rest, maxsplit=1)[0]
        if first != rest and not _exists(rest):
            yield first
        else:
            yield rest


def _exists(path: str) -> bool:
    try:
        return os.path.lexists(path)
    except ValueError:
        return False


def is_own_folder(checkout: Path, folder: str) -> bool:
    """Return whether a folder belongs to this checkout, and not to another repository in it or elsewhere.

    `folder` is a word of a shell command, relative to the checkout. A word that the shell expands is no such folder.
    """
    if any(sign in folder for sign in "~$`*?"):
        return False
    top = checkout.resolve()
    path = Path(os.path.normpath(top / folder))
    if not path.is_relative_to(top) or not os.path.lexists(top / ".git"):
        return False
    inside = [path, *path.parents][: len(path.parts) - len(top.parts)]
    return not any(one.is_symlink() or os.path.lexists(one / ".git") for one in inside)
