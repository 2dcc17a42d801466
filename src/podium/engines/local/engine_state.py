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
    """The line that an engine prints at startup. Both fields are empty if the engine is ready.

    `missing` says why the library cannot be loaded; `failed` describes any other failure.
    """

    missing: str = ""
    failed: str = ""


def read_engine_state(path: Path) -> EngineState | None:
    """Return the state in a file, or None if there is no valid file."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=EngineState)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
