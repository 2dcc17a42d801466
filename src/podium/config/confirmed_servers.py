"""Local servers that the person has agreed to use, in `confirmed.json` of the Podium home.

Any program may sit on a port, so an address is used without being named only after somebody said yes.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

NAME = "confirmed.json"


class Confirmed(Struct, frozen=True, kw_only=True):
    """A server that may be used, and the model of it that was meant."""

    url: str
    provider: str
    model: str


class Servers(Struct, frozen=True, kw_only=True):
    """All that were agreed to, the latest last."""

    servers: tuple[Confirmed, ...] = ()


def confirmed(home: Path) -> tuple[Confirmed, ...]:
    """What was agreed to; nothing where the file is missing or is not what was written."""
    try:
        return msgspec.json.decode((home / NAME).read_bytes(), type=Servers).servers
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return ()


def confirm(home: Path, server: Confirmed) -> None:
    """Remember that this server may be used."""
    # Every command reads what was agreed to, and hardly any writes it.
    from ..system.atomic_file import replace_file

    others = tuple(one for one in confirmed(home) if one.url != server.url)
    replace_file(home / NAME, msgspec.json.format(msgspec.json.encode(Servers(servers=(*others, server)))) + b"\n")
