"""The folder of a worktree, by a pattern that a person may choose.

`{repo}` is the name of the repository's folder, `{branch}` the branch with dashes for slashes, and `~` the home
folder. What is not absolute is seen from the repository. Whether a folder is free is for others to say.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from ...values.errors import Mistake

DEFAULT_FOLDER_PATTERN = "../{repo}-worker-{branch}"
LONGEST_NAME = 255

_FIELD = re.compile(r"\{(repo|branch)\}")
_BRACED = re.compile(r"\{[^{}]*\}?|\}")
_ANY = Path("/above/{repo}")
"""A repository as patterns see it, wherever it is."""


def must_be_folder_pattern(pattern: str) -> None:
    """Raises Mistake for a pattern that is wrong for every repository."""
    if not pattern.isprintable():
        raise Mistake(f"{pattern!r} has a character in it that does not show; a plain path would be right")
    if unknown := _BRACED.search(_FIELD.sub("", pattern)):
        raise Mistake(f"{pattern!r} has {unknown[0]} in it, which stands for nothing; {{repo}} and {{branch}} do")
    if "{branch}" not in os.path.normpath(pattern):
        raise Mistake(f"{pattern!r} is the same folder for every worktree; one with {{branch}} in it would be right")
    if pattern.startswith("~") and not pattern.startswith("~/"):
        raise Mistake(f"{pattern!r} is in somebody else's home folder; ~/ is yours")
    if not pattern.startswith(("~", "/")):
        must_be_outside_repository(Path(os.path.normpath(_ANY / pattern)), _ANY, label=repr(pattern))


def resolve_worktree_folder(pattern: str, *, main: Path, branch: str) -> Path:
    """Where the worktree of a branch is, in the repository whose own folder is `main`. Raises Mistake."""
    must_be_folder_pattern(pattern)
    values = {"repo": main.name, "branch": branch.replace("/", "-")}
    # Where there is no home folder the ~ stays, and is refused below as a folder of the repository.
    whole = os.path.expanduser(pattern)  # noqa: PTH111
    expanded = _FIELD.sub(lambda found: values[found[1]], whole)
    path = Path(os.path.normpath(main / expanded))
    path = path.parent.resolve() / path.name
    must_be_outside_repository(path, main, label=str(path))
    if len(os.fsencode(path.name)) > LONGEST_NAME:
        raise Mistake(f"the folder for {branch!r} would have too long a name; a shorter branch would do")
    return path


def must_be_outside_repository(path: Path, main: Path, *, label: str) -> None:
    """Raises Mistake for a folder, `told` to the person, in which a worktree would be in a repository's way."""
    if any(part.casefold() in (".git", "git~1") for part in path.parts):
        raise Mistake(
            f"{label} would be in a folder of git's own; one beside the repository, as "
            f"{DEFAULT_FOLDER_PATTERN}, would do"
        )
    if path.is_relative_to(main) or main.is_relative_to(path):
        raise Mistake(
            f"{label} would be inside the repository, or around it; one beside it, as "
            f"{DEFAULT_FOLDER_PATTERN}, would do"
        )
