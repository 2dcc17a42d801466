"""Find the files that a command's words refer to. An approval of the command covers the content of these files.

Words are interpreted as the shell would, with quotes and escapes removed, and relative to every folder that the command
may enter.
Files that are specified by variables, patterns or other files are not detected. If a command is too large to parse,
or has too many paths, its approval covers the whole checkout instead: after any change in the checkout, the command
needs a new approval.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from ..core.gate import InvalidCall
from ..policy.shell_command import parse_command

MOST_LOOKUPS = 20_000
MOST_CHECKOUT_FILES = 100_000
LARGEST_FILE = 2**20
CHECKOUT = "."
"""The key for the hash of a whole checkout."""


def hash_named_files(command: str, *checkouts: Path) -> dict[str, str]:
    """Return the hashes of the files in the checkouts that a command refers to, keyed by path.

    Every word of the command is treated as a possible path. The command runs in the first checkout; files in the others
    are keyed by their absolute paths. If it cannot be determined which files the command refers to, return one
    hash that covers all files in all checkouts, with the key `CHECKOUT`. Raise InvalidCall if the checkouts contain
    too many files for such a hash.
    """
    roots = [one.resolve() for one in checkouts]
    found = parse_command(command)
    words = _list_words(command)
    folders = None if found.unread else _find_folders(roots, words)
    if folders is None or len(folders) * len(words) > MOST_LOOKUPS:
        return {CHECKOUT: _hash_checkouts(roots)}
    hashes: dict[str, str] = {}
    for folder in folders:
        for word in words:
            with suppress(OSError, ValueError, RuntimeError):
                path = (folder / word).resolve()
                if (name := _name_file(roots, path)) is not None and path.is_file():
                    name.encode()  # raises ValueError if the name is not valid Unicode and cannot be recorded
                    if name not in hashes:
                        hashes[name] = _hash_file(path)
    return hashes


def read_approved_scripts(command: str, inputs: Mapping[str, str], *checkouts: Path) -> dict[str, bytes]:
    """Return the content of the scripts that a command runs, keyed by path. Raise InvalidCall if one has changed.

    `inputs` maps paths to the approved hashes. The command runs in the first checkout.
    """
    roots = [one.resolve() for one in checkouts]
    root = roots[0]
    scripts: dict[str, bytes] = {}
    for name in dict.fromkeys(_find_scripts(command, roots, inputs)):
        try:
            content = (root / name).read_bytes()
            is_same = _hash_content(root / name, content) == inputs[name]
        except OSError as error:
            raise InvalidCall(f"{name} cannot be read any more: {error.strerror}.") from error
        if not is_same:
            raise InvalidCall(f"{name} has changed since it was approved; read it, then call the tool again.")
        scripts[name] = content
    return scripts


def _list_words(command: str) -> list[str]:
    """Return all words of a command that can be paths, both as interpreted by the shell and as written."""
    found = parse_command(command)
    read = (word for words in found.candidates for word in words)
    written = _SEPARATORS.split(command)
    return [word for word in dict.fromkeys((*read, *found.mentions, *found.writes, *written)) if word]


_SEPARATORS = re.compile(r"[\s;|&<>()'\"`=]+")


def _name_file(roots: Sequence[Path], path: Path) -> str | None:
    """Return the key of a file, or None if the file is outside all roots.

    The key is the path relative to the first root, or the absolute path if the file is in another root.
    """
    if path.is_relative_to(roots[0]):
        return str(path.relative_to(roots[0]))
    return str(path) if any(path.is_relative_to(root) for root in roots[1:]) else None


def _find_folders(roots: Sequence[Path], words: list[str]) -> list[Path] | None:
    """Return the checkout and every folder in it that a command may enter, or None if there are too many."""
    folders = {roots[0]: None}
    waiting = [roots[0]]
    while waiting:
        folder = waiting.pop()
        for word in words:
            if (inner := _resolve_folder(roots, folder / word)) is not None and inner not in folders:
                folders[inner] = None
                waiting.append(inner)
        if len(folders) * len(words) > MOST_LOOKUPS:
            return None
    return list(folders)


def _resolve_folder(roots: Sequence[Path], path: Path) -> Path | None:
    with suppress(OSError, ValueError, RuntimeError):
        resolved = path.resolve()
        return resolved if _name_file(roots, resolved) is not None and resolved.is_dir() else None
    return None


def _hash_file(path: Path) -> str:
    return _hash_content(path, b"" if path.stat().st_size > LARGEST_FILE else path.read_bytes())


def _hash_content(path: Path, content: bytes) -> str:
    """Return the hash of a file's content or, for a large file, of its size, times and inode."""
    found = path.stat()
    if found.st_size > LARGEST_FILE:
        content = f"{found.st_size} {found.st_mtime_ns} {found.st_ctime_ns} {found.st_ino}".encode()
    return sha256(content).hexdigest()


def _hash_checkouts(roots: Sequence[Path]) -> str:
    """Return a hash of the names, sizes and times of all files outside `.git`.

    Raise InvalidCall if there are too many files.
    """
    whole = sha256()
    count = 0
    for folder, folders, names in (entry for root in roots for entry in os.walk(root)):
        folders[:] = sorted(name for name in folders if name != ".git")
        for name in sorted(names):
            count += 1
            with suppress(OSError):
                found = os.lstat(f"{folder}/{name}")
                whole.update(os.fsencode(f"{folder}/{name}\0{found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}\n"))
        if count > MOST_CHECKOUT_FILES:
            raise InvalidCall(
                "Podium cannot determine which files `command` refers to, and the checkout has too many files to check "
                "all of them; split the command into several commands, or put it in a script and run the script."
            )
    return whole.hexdigest()


# Scripts ---------------------------------------------------------------------------------------------


def _find_scripts(command: str, roots: Sequence[Path], inputs: Mapping[str, str]) -> Iterator[str]:
    """Yield the files that a command runs, either directly or as the script of an interpreter."""
    if CHECKOUT in inputs:
        return
    folders = _find_folders(roots, _list_words(command)) or [roots[0]]
    for words in parse_command(command).candidates:
        is_interpreter = words[0].rpartition("/")[2].rstrip("0123456789.") in INTERPRETERS or words[0] == "."
        named = [word for word in words[1:] if not word.startswith("-")] if is_interpreter else [words[0]]
        for folder in folders:
            if (name := _find_first_input(roots, folder, named, inputs)) is not None:
                yield name


def _find_first_input(roots: Sequence[Path], folder: Path, words: list[str], inputs: Mapping[str, str]) -> str | None:
    """Return the first of `inputs` that one of the words refers to, or None. Words are relative to `folder`."""
    for word in words:
        with suppress(OSError, ValueError, RuntimeError):
            path = (folder / word).resolve()
            if (name := _name_file(roots, path)) is not None and name in inputs:
                return name
    return None


INTERPRETERS = frozenset(
    ("sh", "bash", "dash", "zsh", "ksh", "python", "node", "deno", "bun", "perl", "ruby", "php", "lua", "source")
)
