"""Local servers that the person has agreed to use, in `confirmed.json` of the Podium home.

Any program may sit on a port, so an address is used without being named only after somebody said yes.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

NAME = "confirmed.json"
LOCK = ".confirmed.lock"


class ConfirmedServer(Struct, frozen=True, kw_only=True):
    """A server that may be used, and the model of it that was meant."""

    url: str
    provider: str
    model: str


class ConfirmedServers(Struct, frozen=True, kw_only=True):
    """All that were agreed to, the latest last."""

    servers: tuple[ConfirmedServer, ...] = ()


def load_confirmed_servers(home: Path) -> tuple[ConfirmedServer, ...]:
    """What was agreed to; nothing where the file is missing or is not what was written."""
    try:
        return msgspec.json.decode((home / NAME).read_bytes(), type=ConfirmedServers).servers
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return ()


def save_confirmed_server(home: Path, server: ConfirmedServer) -> None:
    """Remember that this server may be used."""
    # For start-up time: every command reads this file, and hardly any writes it.
    from ..system.atomic_file import replace_file
    from ..system.file_lock import hold_file_lock

    path = home / NAME
    with hold_file_lock(home / LOCK, protects=path):
        others = tuple(one for one in load_confirmed_servers(home) if one.url != server.url)
        servers = ConfirmedServers(servers=(*others, server))
        replace_file(path, msgspec.json.format(msgspec.json.encode(servers)) + b"\n")
