"""Identify this user and this machine, or more precisely the Podium home on it, among those that use the same store."""

from __future__ import annotations

import os
import re
import secrets
import socket
from functools import cache
from pathlib import Path

from ..values.actor import Actor, Channel
from ..values.errors import Mistake
from .file_lock import hold_file_lock
from .whole_file import replace_file

VARIABLES = ("LOGNAME", "USER", "LNAME", "USERNAME")
"""The variables that `getpass.getuser` reads, in its order."""


HOST_FILE = "host-id"
HOST_ID = re.compile(r"[\w.-]{1,200}", re.ASCII)


def read_host_id(home: Path) -> str:
    """Return the id of this machine: its name and a random number. The first call stores the id in the Podium home.

    Raise Mistake if the file with the id is invalid or cannot be written.
    """
    path = home / HOST_FILE
    if (known := _read_id(path)) is not None:
        return known
    with hold_file_lock(home / f".{HOST_FILE}.lock", protects=path):
        if (known := _read_id(path)) is None:
            name = re.sub(r"[^\w.-]", "-", socket.gethostname(), flags=re.ASCII)[:100] or "host"
            known = f"{name}-{secrets.token_hex(4)}"
            replace_file(path, f"{known}\n".encode())
    return known


@cache
def read_machine_boot() -> str:
    """Return an id for this boot of the machine, or an empty string if the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _read_id(path: Path) -> str | None:
    """Return the stored id, or None if there is none yet."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace").strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Mistake(f"{path} cannot be read: {error.strerror or error}; check its permissions") from error
    if not HOST_ID.fullmatch(text):
        raise Mistake(f"{path} does not contain a valid machine id; delete it, and Podium will create a new one")
    return text


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
