"""Find out who uses this process."""

from __future__ import annotations

import getpass

from ..values.actor import Actor, Channel


def get_username() -> str:
    """Return the name of the user on this machine."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "somebody"


def get_local_actor(channel: Channel, name: str = "") -> Actor:
    """Return the user of this process as the one who acts. `name` replaces the name of the user."""
    return Actor(name=name or get_username(), channel=channel)
