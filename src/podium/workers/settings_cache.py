"""Cache the current settings, and read them again only if one of their files has changed.

A rule that the user adds must apply to all later requests, but reading all files for each request would take longer
than all other work on the request.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ..files.always_allow_rules import FILE as ALLOWED
from ..files.confirmed_model_servers import NAME as CONFIRMED
from ..files.settings import Settings
from ..files.settings_files import MCP_FILE, REPO_FILE, USER_FILE
from ..files.trust import FILE as TRUST
from ..system.locations import find_home_folder

STABLE_AFTER_NS = 1_000_000_000
"""How long a file must have been unchanged before its settings are cached.

Two changes in quick succession can leave the same timestamp, so that the second change would not be noticed.
"""


class FileStamp(NamedTuple):
    """The attributes that show whether a file has changed."""

    changed_ns: int
    size: int
    inode: int
    device: int


class CachedSettings(NamedTuple):
    """Settings, with the stamps of the files they were read from. The stamp of a missing file is None."""

    stamps: list[FileStamp | None]
    settings: Settings


class SettingsCache:
    """A cache of the current settings in an environment, with an entry for each repository."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        home = find_home_folder(environ)
        self._user_files = [os.fspath(home / name) for name in (USER_FILE, ALLOWED, CONFIRMED, TRUST)]
        self._cached: dict[str, CachedSettings] = {}

    def get_settings(self, repo: str = "") -> Settings:
        """Return the current settings, with those of `repo` if it is given. Raise Mistake if they are invalid."""
        # Stat before reading: a change in between is then seen by the next call.
        repo_files = (f"{repo}/{REPO_FILE}", f"{repo}/{MCP_FILE}") if repo else ()
        stamps = [_stat_file(path) for path in (*self._user_files, *repo_files)]
        cached = self._cached.get(repo)
        if cached is not None and cached.stamps == stamps:
            return cached.settings
        settings = Settings.load(self._environ, repo=Path(repo) if repo else None)
        stable_before = time.time_ns() - STABLE_AFTER_NS
        if all(stamp is None or stamp.changed_ns < stable_before for stamp in stamps):
            self._cached[repo] = CachedSettings(stamps, settings)
        return settings


def _stat_file(path: str) -> FileStamp | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - called six times per request, and pathlib is slower than the system call
    except OSError:
        return None
    return FileStamp(max(found.st_mtime_ns, found.st_ctime_ns), found.st_size, found.st_ino, found.st_dev)
