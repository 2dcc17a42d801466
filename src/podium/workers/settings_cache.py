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
from ..setup.settings import Settings, home_folder

SETTLED_NS = 1_000_000_000
"""A file that was changed so recently may be changed again without its time saying so: it is read each time."""


class Mark(NamedTuple):
    """What tells whether a file is as it was."""

    changed: int
    size: int
    number: int
    folder: int


class Known(NamedTuple):
    """Settings, and how the files were that they were read from; None stands for one that there is not."""

    marks: list[Mark | None]
    settings: Settings


class Latest:
    """The settings that hold in an environment, for whatever repository."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        home = home_folder(environ)
        self._mine = [os.fspath(home / name) for name in (USER_FILE, ALLOWED, CONFIRMED, TRUST)]
        self._known: dict[str, Known] = {}

    def settings(self, repo: str = "") -> Settings:
        """Those that hold there now, or without a repository. Raises Mistake."""
        # Looked at before it is read: what changes in between is seen at the next question.
        theirs = (f"{repo}/{REPO_FILE}", f"{repo}/{MCP_FILE}") if repo else ()
        marks = [_mark(path) for path in (*self._mine, *theirs)]
        known = self._known.get(repo)
        if known is not None and known.marks == marks:
            return known.settings
        settings = Settings.load(self._environ, repo=Path(repo) if repo else None)
        settled = time.time_ns() - SETTLED_NS
        if all(mark is None or mark.changed < settled for mark in marks):
            self._known[repo] = Known(marks, settings)
        return settings


def _mark(path: str) -> Mark | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - for each request six times, and pathlib takes longer than the system
    except OSError:
        return None
    return Mark(max(found.st_mtime_ns, found.st_ctime_ns), found.st_size, found.st_ino, found.st_dev)
