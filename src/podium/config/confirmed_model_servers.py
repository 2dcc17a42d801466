"""Store the local model servers that the user has confirmed, in `confirmed.json` in Podium's home folder.

Any program can listen on a port, so a detected server is used only after the user confirms it.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

NAME = "confirmed.json"
LOCK = ".confirmed.lock"


class ConfirmedServer(Struct, frozen=True, kw_only=True):
    """A confirmed server, and the model that the user chose on this server."""

    url: str
    provider: str
    model: str


class ConfirmedServers(Struct, frozen=True, kw_only=True):
    """All confirmed servers, newest last."""

    servers: tuple[ConfirmedServer, ...] = ()


def load_confirmed_servers(home: Path) -> tuple[ConfirmedServer, ...]:
    """Load the confirmed servers. A missing or invalid file counts as empty."""
    try:
        return msgspec.json.decode((home / NAME).read_bytes(), type=ConfirmedServers).servers
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return ()


def save_confirmed_server(home: Path, server: ConfirmedServer) -> None:
    """Save a server as confirmed."""
    # For start-up time: every command reads this file, but few write it.
    from ..system.atomic_file import replace_file
    from ..system.file_lock import hold_file_lock

    path = home / NAME
    with hold_file_lock(home / LOCK, protects=path):
        others = tuple(one for one in load_confirmed_servers(home) if one.url != server.url)
        servers = ConfirmedServers(servers=(*others, server))
        replace_file(path, msgspec.json.format(msgspec.json.encode(servers)) + b"\n")
