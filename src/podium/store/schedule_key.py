"""The secret with which a host proves that it may start the scheduled runs of its machine.

The secret is in a file in the Podium home. A PostgreSQL store contains only a digest of the secret. So a host on
another machine can read the store, but cannot record that one of these scheduled runs was started or missed.
"""

from __future__ import annotations

import secrets
import socket
from contextlib import closing
from hashlib import sha256
from pathlib import Path

from ..system.atomic_file import replace_file
from ..system.file_lock import hold_file_lock
from ..system.host_id import read_host_id
from ..values.errors import Mistake
from ..values.store_address import PostgresAddress, StoreAddress
from .store_connection import open_connection, open_for_reading, translate_errors

FILE = "schedule-key"


def read_schedule_secret(home: Path) -> str:
    """Return the secret of this machine, or an empty string if no schedule was added here."""
    try:
        return (home / FILE).read_text("ascii").strip()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise Mistake(
            f"{home / FILE} cannot be read ({error}); delete it, and create it again with podium schedule start"
        ) from error


def publish_schedule_key(store: StoreAddress, home: Path) -> None:
    """Let the hosts on this machine start the runs of this machine's schedules. Do nothing for a SQLite store."""
    if not isinstance(store, PostgresAddress):
        return
    with hold_file_lock(home / f".{FILE}.lock", protects=home / FILE):
        if not (secret := read_schedule_secret(home)):
            secret = secrets.token_hex(32)
            replace_file(home / FILE, f"{secret}\n".encode())
    digest = sha256(secret.encode()).hexdigest()
    with translate_errors(store), closing(open_connection(store, create=True)) as connection:
        connection.execute(
            "INSERT INTO schedule_key (machine, digest) VALUES (?, ?)"
            " ON CONFLICT (machine) DO UPDATE SET digest = excluded.digest",
            (read_host_id(home), digest),
        )


def has_host_on_this_machine(store: StoreAddress) -> bool:
    """Return whether a host of the store's fleet runs on this machine, as far as the store knows."""
    if not isinstance(store, PostgresAddress):
        return False
    with translate_errors(store), closing(open_for_reading(store)) as connection:
        found = connection.execute(
            "SELECT 1 FROM owner JOIN host ON host.login = owner.login"
            " WHERE owner.host = ? AND owner.until > clock_seconds() LIMIT 1",
            (socket.gethostname(),),
        )
        return found.fetchone() is not None
