"""The latest settings: as the files say them now, read again only where one of the files has changed.

A rule that a person adds counts from the next request on. Reading everything for each would take longer than all
the rest of the answer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ..config.allowed_rules import FILE as ALLOWED
from ..config.confirmed_servers import NAME as CONFIRMED
from ..config.settings_files import MCP_FILE, REPO_FILE, USER_FILE
from ..config.trust import FILE as TRUST
from ..setup.settings import Settings, find_home_folder

STABLE_AFTER_NS = 1_000_000_000
"""A file that was changed so recently may be changed again without its time saying so: it is read each time."""


class FileStamp(NamedTuple):
    """What tells whether a file is as it was."""

    changed_ns: int
    size: int
    inode: int
    device: int


class CachedSettings(NamedTuple):
    """Settings, and how the files were that they were read from; None stands for one that there is not."""

    stamps: list[FileStamp | None]
    settings: Settings


class SettingsCache:
    """The settings that hold in an environment, for whatever repository."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        home = find_home_folder(environ)
        self._user_files = [os.fspath(home / name) for name in (USER_FILE, ALLOWED, CONFIRMED, TRUST)]
        self._cached: dict[str, CachedSettings] = {}

    def get_settings(self, repo: str = "") -> Settings:
        """Those that hold there now, or without a repository. Raises Mistake."""
        # Looked at before it is read: what changes in between is seen at the next question.
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
        found = os.stat(path)  # noqa: PTH116 - for each request six times, and pathlib takes longer than the system
    except OSError:
        return None
    return FileStamp(max(found.st_mtime_ns, found.st_ctime_ns), found.st_size, found.st_ino, found.st_dev)
