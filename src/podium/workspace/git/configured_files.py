"""Files of a checkout that the repository's own configuration names: git's hooks, and configuration that is included.

Git runs what they contain, so commands must not change them, whatever they are called.
"""

from __future__ import annotations

import os
from pathlib import Path

from ...values.errors import Mistake, OutsideFailed
from .repository import Repository, call_git

KEYS = r"^(core\.hookspath|include\.path|includeif\..*\.path)$"
MARKS = (b"hookspath", b"include")


async def find_configured_files(checkout: Path) -> list[str]:
    """Return the files and folders of a checkout that its repository's configuration names; none if it has none."""
    try:
        repository = Repository.at(checkout)
        # Most repositories name none, and starting git takes longer than reading the file.
        written = (repository.common_dir / "config").read_bytes().lower()
        if not any(mark in written for mark in MARKS):
            return []
        listed = await call_git(repository, "config", "--local", "--type=path", "-z", "--get-regexp", KEYS)
    except (Mistake, OutsideFailed, OSError):
        return []
    return _select_inside(checkout, repository, os.fsdecode(listed.out).split("\0"))


def _select_inside(checkout: Path, repository: Repository, entries: list[str]) -> list[str]:
    """Return the paths in a checkout that entries of the configuration name."""
    found: list[str] = []
    for entry in entries:
        key, _, value = entry.partition("\n")
        base = repository.root if key == "core.hookspath" else repository.common_dir
        place = Path(os.path.normpath(base / value))
        if value and place.is_relative_to(checkout) and place != checkout:
            found.append(place.relative_to(checkout).as_posix())
    return found
