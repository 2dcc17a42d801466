"""Resolve the folder of a worktree from a pattern that the user can set.

`{repo}` is the name of the repository's folder, `{branch}` is the branch with dashes instead of slashes, and `~`
is the home folder. A relative pattern is relative to the repository. If the folder belongs to another branch,
`{branch}` gets a suffix. This module does not check whether the folder exists.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container
from hashlib import sha256
from pathlib import Path

from ...values.errors import Mistake

DEFAULT_FOLDER_PATTERN = "../{repo}-worker-{branch}"
LONGEST_NAME = 255
SUFFIX_DIGITS = 6

_FIELD = re.compile(r"\{(repo|branch)\}")
_BRACED = re.compile(r"\{[^{}]*\}?|\}")
_ANY = Path("/above/{repo}")
"""An example repository, used to check patterns."""


def must_be_folder_pattern(pattern: str) -> None:
    """Raise Mistake if a pattern for worktree folders would be invalid in every repository."""
    if not pattern.isprintable():
        raise Mistake(f"{pattern!r} contains an unprintable character; use a plain path")
    if unknown := _BRACED.search(_FIELD.sub("", pattern)):
        raise Mistake(f"{pattern!r} contains {unknown[0]}, which is not a placeholder; use {{repo}} and {{branch}}")
    if "{branch}" not in os.path.normpath(pattern):
        raise Mistake(
            f"{pattern!r} would use the same folder for every worktree; use a pattern that contains {{branch}}"
        )
    if pattern.startswith("~") and not pattern.startswith("~/"):
        raise Mistake(f"{pattern!r} is in another user's home folder; use ~/ for yours")
    if not pattern.startswith(("~", "/")):
        must_be_outside_repository(Path(os.path.normpath(_ANY / pattern)), _ANY, label=repr(pattern))


def choose_worktree_folder(pattern: str, *, main: Path, branch: str, taken: Container[Path]) -> Path:
    """Return the folder for a branch's worktree. If that folder is taken, add a suffix to its name.

    Raise Mistake if the folder with the suffix is taken too, or if a folder is invalid. The suffix depends only on the
    repository and the branch, so a second attempt after a crash chooses the same folder.
    """
    plain = resolve_worktree_folder(pattern, main=main, branch=branch)
    if plain not in taken:
        return plain
    digest = sha256(f"{main}\n{branch}".encode()).hexdigest()[:SUFFIX_DIGITS]
    suffixed = resolve_worktree_folder(pattern, main=main, branch=branch, suffix=f"-{digest}")
    if suffixed in taken:
        raise Mistake(f"{plain} and {suffixed} belong to other worktrees; use a branch name other than {branch!r}")
    return suffixed


def resolve_worktree_folder(pattern: str, *, main: Path, branch: str, suffix: str = "") -> Path:
    """Return the folder for a branch's worktree. `main` is the main worktree. Raise Mistake for an invalid folder."""
    must_be_folder_pattern(pattern)
    values = {"repo": main.name, "branch": branch.replace("/", "-") + suffix}
    # If the user has no home folder, the ~ is not replaced, and is rejected below as a folder inside the repository.
    whole = os.path.expanduser(pattern)  # noqa: PTH111
    expanded = _FIELD.sub(lambda found: values[found[1]], whole)
    path = Path(os.path.normpath(main / expanded))
    path = path.parent.resolve() / path.name
    must_be_outside_repository(path, main, label=str(path))
    if len(os.fsencode(path.name)) > LONGEST_NAME:
        raise Mistake(f"the folder name for {branch!r} would be too long; use a shorter branch name")
    return path


def must_be_outside_repository(path: Path, main: Path, *, label: str) -> None:
    """Raise Mistake if a path is in a git directory, is inside the repository `main`, or contains it.

    Messages refer to the path as `label`.
    """
    if any(part.casefold() in (".git", "git~1") for part in path.parts):
        raise Mistake(
            f"{label} would be in git's own folder; use a path next to the repository, such as {DEFAULT_FOLDER_PATTERN}"
        )
    if path.is_relative_to(main) or main.is_relative_to(path):
        raise Mistake(
            f"{label} would be inside the repository or contain it; "
            f"use a path next to the repository, such as {DEFAULT_FOLDER_PATTERN}"
        )
