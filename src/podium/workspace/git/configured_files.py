"""Find the files in a checkout that git's configuration refers to: hooks and included configuration files.

These files can make git run programs, so commands must not change them, whatever their names are.
"""

from __future__ import annotations

import os
from pathlib import Path

from ...values.errors import Mistake, OutsideFailed
from .repository import Repository, call_git

KEYS = r"^(core\.hookspath|include\.path|includeif\..*\.path)$"
MARKS = (b"hookspath", b"include")


async def find_configured_files(checkout: Path) -> list[str]:
    """Return the files and folders in a checkout that the configuration of its repository refers to.

    The paths are relative to the checkout. The list is empty if the configuration cannot be read.
    """
    try:
        repository = Repository.at(checkout)
        # Most configurations refer to no such file, and starting git takes longer than reading the configuration.
        written = (repository.common_dir / "config").read_bytes().lower()
        if not any(mark in written for mark in MARKS):
            return []
        listed = await call_git(repository, "config", "--local", "--type=path", "-z", "--get-regexp", KEYS)
    except (Mistake, OutsideFailed, OSError):
        return []
    return _select_inside(checkout, repository, os.fsdecode(listed.out).split("\0"))


def _select_inside(checkout: Path, repository: Repository, entries: list[str]) -> list[str]:
    """Return the paths inside a checkout that configuration entries refer to, relative to the checkout."""
    found: list[str] = []
    for entry in entries:
        key, _, value = entry.partition("\n")
        base = repository.root if key == "core.hookspath" else repository.common_dir
        place = Path(os.path.normpath(base / value))
        if value and place.is_relative_to(checkout) and place != checkout:
            found.append(place.relative_to(checkout).as_posix())
    return found
