"""Find out who uses this process."""

from __future__ import annotations

import os

from ..values.actor import Actor, Channel

VARIABLES = ("LOGNAME", "USER", "LNAME", "USERNAME")
"""The variables that `getpass.getuser` reads, in its order."""


def get_username() -> str:
    """Return the name of the user on this machine."""
    if name := next(filter(None, map(os.environ.get, VARIABLES)), None):
        return name
    import getpass  # imported here to keep start-up fast: one of the variables is usually set

    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):  # on Windows, there is no module pwd
        return "somebody"


def get_local_actor(channel: Channel, name: str = "") -> Actor:
    """Return the user of this process as the one who acts. `name` replaces the name of the user."""
    return Actor(name=name or get_username(), channel=channel)
