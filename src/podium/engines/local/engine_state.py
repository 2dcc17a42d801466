"""The state and the startup report that a local model's process publishes for its callers."""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct


class EngineState(Struct, frozen=True, kw_only=True):
    """A running engine: its process id, its address and the token that it requires."""

    pid: int
    url: str
    token: str


class EngineReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The line that an engine prints at startup: what is missing or has failed. Both are empty if it is ready."""

    missing: str = ""
    failed: str = ""


def read_engine_state(path: Path) -> EngineState | None:
    """Return the state in a file, or None if there is no valid file."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=EngineState)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
