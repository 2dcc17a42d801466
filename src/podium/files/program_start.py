"""Find where the program of a server or hook starts, and which files of a checkout its definition names.

A program outside the sandbox starts in an empty folder, so a relative path in its arguments would mean nothing, and
is refused unless the definition sets `cwd`. A definition that names a path in a checkout, or that starts there, runs
files that agents' commands can change. It needs the user's trust, which covers the content of the named files, and its
program runs in the sandbox.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import msgspec

from ..system.checkouts import Checkouts
from ..values.errors import Mistake
from ..values.plain_text import escape_unprintable, truncate_text

SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish"))
LARGEST_DIGESTED = 64 * 1024 * 1024
CHUNK = 1024 * 1024

_TEXT_OPTION = re.compile("-[A-Za-z]*c")
_PART = re.compile(r"[=:,]")
_OTHER_PROCESS = re.compile(r"/proc/(?!self/)[^/\s]{1,100}/(?:cwd|root|fd)\b")
"""Folders and files of another process, such as Podium's own, which may have started in the checkout."""
_SHORT_OPTION = re.compile(r"^-[A-Za-z](?=\.\.?(?:/|$))")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramStart:
    """Where a program starts, and which files of a checkout it depends on.

    `folder` is None for an empty folder. `content` maps the paths in a checkout that the definition names, relative to
    the checkout, to the hash of each file, or to a word that says what is there. `paths` contains the same paths in
    full. A program that depends on a checkout needs the user's trust and runs in the sandbox.
    """

    folder: Path | None = None
    content: Mapping[str, str] = field(default_factory=dict)
    paths: tuple[Path, ...] = ()
    is_dependent: bool = False

    def compute_digest(self, definition: str) -> str:
        """Return the hash that the user trusts: that of the definition, combined with the content if there is any."""
        if not self.is_dependent:
            return definition
        return sha256(msgspec.json.encode((definition, self.content), order="sorted")).hexdigest()


def plan_start(
    command: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    repo: Path | None,
    checkouts: Checkouts,
    variables: Mapping[str, str],
) -> ProgramStart:
    """Return where a command starts and what it depends on. Raise Mistake if a relative path in it needs `cwd`.

    `env` contains the variables that the definition sets. `variables` are known to a shell that the command starts.
    `repo` is the folder to which a relative `cwd` refers.
    """
    folder = _resolve_cwd(cwd, repo)
    if folder is None:
        require_no_relative_path(command)
    known = {**variables, **env}
    words = (*command, *env.values())
    found = [path for word in words for path in checkouts.list_named(word, known)]
    # A command can change to a folder above the checkout that it names, a shell also to the user's home without a name.
    above = [Path(path) for word in words for path in checkouts.list_above(word, known)]
    home = [Path(path) for path in checkouts.list_above("~")]
    above += home if _find_shell_text(command) else []
    for start in (*([folder] if folder is not None else ()), *dict.fromkeys(above)):
        found += [path for path in _iter_relative_paths(command, start) if checkouts.contain(path)]
    # Code in another language, and programs such as su and ssh, can start in the user's home, too.
    for start in home:
        found += [path for path in _iter_relative_paths(command, start, "/") if checkouts.contain(path)]
    if repo is not None and any(_OTHER_PROCESS.search(word) for word in words):
        found.append(str(repo))
    paths = tuple(Path(path) for path in dict.fromkeys(found))
    is_dependent = bool(paths) or (folder is not None and checkouts.contain(folder))
    content = {_name_path(path, checkouts): _describe_content(path) for path in paths}
    return ProgramStart(folder=folder, content=content, paths=paths, is_dependent=is_dependent)


def _resolve_cwd(cwd: str, repo: Path | None) -> Path | None:
    """Return the folder that `cwd` names, or None if it is not set. Raise Mistake if there is no folder to refer to."""
    if not cwd:
        return None
    folder = Path(os.path.expanduser(cwd))  # noqa: PTH111 - an unknown user is not an error here
    if repo is None and not folder.is_absolute():
        raise Mistake(f"cwd: {_show(cwd)} is relative to the repository, and this run has none; give an absolute path")
    return folder if repo is None else repo / folder


def require_no_relative_path(command: Sequence[str]) -> None:
    """Raise Mistake if a command contains a path that is relative to the folder that its program starts in."""
    program = command[0] if command else ""
    if "/" in program and not program.startswith(("/", "~/")):
        raise Mistake(_explain_relative(f"the program {_show(program)}"))
    words = list(command[1:])
    if text := _find_shell_text(command):
        # In the text of a shell command, a lone dot is also the command that reads a file.
        named = [word for word in _split_shell_text(text) if word != "." and _is_relative(word)]
        words = [*named, *(word for word in words if word != text)]
    for word in words:
        if any(map(_is_relative, (word, _SHORT_OPTION.sub("", word), *_PART.split(word)[1:]))):
            raise Mistake(_explain_relative(f"the argument {_show(word)}"))


def _explain_relative(what: str) -> str:
    return (
        f"{what} is a relative path, but the program does not start in the repository; give an absolute path, or add "
        "cwd: . to start the program there, in the sandbox"
    )


def _find_shell_text(command: Sequence[str]) -> str:
    """Return the text in `sh -c text`, also behind options and other programs, or "" if a command is none of these."""
    names = [os.path.basename(word) for word in command]  # noqa: PTH119 - plain text
    start = next((at for at, name in enumerate(names) if name in SHELLS), len(command))
    options = (at for at in range(start + 1, len(command) - 1) if _TEXT_OPTION.fullmatch(command[at]))
    return next((command[at + 1] for at in options), "")


def _is_relative(part: str) -> bool:
    if part in (".", "..") or part.startswith(("./", "../")):
        return True
    # Some programs remove ".." from a path before they open it, so the folders before it need not exist.
    return ".." in part.split("/") and os.path.normpath(part).startswith("..")


def _split_shell_text(text: str) -> list[str]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        return [part for word in lexer for part in (word, *_PART.split(word)[1:])]
    except ValueError:  # the shell reports the unmatched quote
        return text.split()


def _iter_relative_paths(command: Sequence[str], folder: Path, mark: str = "") -> Iterator[str]:
    """Yield the existing paths with `mark` that the words of a command may mean, if its program starts in a folder."""
    for word in command:
        texts = _split_shell_text(word) if " " in word else []
        inner = [part for text in texts if " " in text for part in _split_shell_text(text)]  # quoted in quotes
        for part in dict.fromkeys((word, *_PART.split(word)[1:], *texts, *inner)):
            if part and mark in part and not part.startswith("/") and len(part) < 4096 and "\0" not in part:
                path = os.path.join(folder, part)  # noqa: PTH118 - plain text
                if os.path.lexists(path):
                    yield path


def _name_path(path: Path, checkouts: Checkouts) -> str:
    real = os.path.realpath(path)
    for folder in checkouts.folders:
        if real == folder or real.startswith(f"{folder}{os.sep}"):
            return os.path.relpath(real, folder)
    return str(path)


def _describe_content(path: Path) -> str:
    """Return the SHA-256 hash of a regular file, or a word for what is there instead of one."""
    try:
        # Without blocking: a pipe must not hold the check up.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError:
        return "missing"
    except OSError:
        return "unreadable"
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            return "folder" if stat.S_ISDIR(mode) else "special"
        digest, left = sha256(), LARGEST_DIGESTED
        while left > 0 and (chunk := os.read(descriptor, min(CHUNK, left))):
            digest.update(chunk)
            left -= len(chunk)
        return digest.hexdigest()
    except OSError:
        return "unreadable"
    finally:
        os.close(descriptor)


def join_paths(paths: Iterable[str]) -> str:
    """Return paths as text for a message."""
    return escape_unprintable(truncate_text(", ".join(paths), 300))


def _show(word: str) -> str:
    return repr(escape_unprintable(truncate_text(word, 200)))
