"""Store the model servers and coding agents that the user has confirmed, in `confirmed.json` in Podium's home folder.

Any program can listen on a port, and a coding agent can cost money. So the user must agree before Podium selects a
detected server automatically, and before a repository's agents use a local server or an installed coding agent.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct, structs

NAME = "confirmed.json"
LOCK = ".confirmed.lock"


class ConfirmedServer(Struct, frozen=True, kw_only=True):
    """A confirmed server, and the model that the user chose on this server."""

    url: str
    provider: str
    model: str


class Confirmed(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All confirmed servers, newest last, and the names of confirmed coding agents."""

    servers: tuple[ConfirmedServer, ...] = ()
    agents: tuple[str, ...] = ()


def load_confirmed(home: Path) -> Confirmed:
    """Load the confirmed servers and coding agents. A missing or invalid file counts as empty."""
    try:
        return msgspec.json.decode((home / NAME).read_bytes(), type=Confirmed)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return Confirmed()


def load_confirmed_servers(home: Path) -> tuple[ConfirmedServer, ...]:
    """Load the confirmed servers."""
    return load_confirmed(home).servers


def save_confirmed_server(home: Path, server: ConfirmedServer) -> None:
    """Record that the user has confirmed the use of a model server."""

    def add_server(known: Confirmed) -> Confirmed:
        others = (one for one in known.servers if one.url != server.url)
        return structs.replace(known, servers=(*others, server))

    _change_confirmed(home, add_server)


def save_confirmed_agent(home: Path, name: str) -> None:
    """Record that the user has confirmed the use of a coding agent."""
    _change_confirmed(home, lambda known: structs.replace(known, agents=tuple(dict.fromkeys((*known.agents, name)))))


def _change_confirmed(home: Path, change: Callable[[Confirmed], Confirmed]) -> None:
    # Imported here to keep start-up fast: every command reads this file, but few write it.
    from ..system.file_lock import hold_file_lock
    from ..system.whole_file import replace_file

    path = home / NAME
    with hold_file_lock(home / LOCK, protects=path):
        changed = change(load_confirmed(home))
        replace_file(path, msgspec.json.format(msgspec.json.encode(changed)) + b"\n")
