"""Find time zones by their names."""

from __future__ import annotations

import os
from pathlib import Path
from zoneinfo import ZoneInfo

from ..values.errors import Mistake


def load_zone(name: str) -> ZoneInfo:
    """Return the time zone with this name. Raise Mistake if it is unknown."""
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):
        raise Mistake(f"unknown time zone {name[:60]!r}; use a name such as Europe/Berlin or UTC") from None


def find_local_zone() -> str:
    """Return the name of this machine's time zone, or UTC if the zone has no name."""
    named = [os.environ.get("TZ", "").lstrip(":"), str(Path("/etc/localtime").resolve()).partition("zoneinfo/")[2]]
    for name in filter(None, named):
        try:
            return load_zone(name).key
        except Mistake:
            continue
    return "UTC"
