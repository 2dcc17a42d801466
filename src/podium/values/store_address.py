"""The address of a store: the path of a SQLite file, or the URL of a PostgreSQL database."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import Mistake

PGQUEUER = "pgqueuer"
"""The queue in the store's database, which is the only one."""


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """A PostgreSQL database, and the folder on this machine for the sockets, locks and logs of its processes.

    The URL may contain a password, so messages show `str(address)`, which omits it.
    """

    url: str
    folder: Path

    @property
    def home(self) -> Path:
        """The Podium home that `folder` is in; see `make_postgres_address`."""
        return self.folder.parents[1]

    def exists(self) -> bool:
        """Return True, because opening the database creates the store if it does not exist yet."""
        return True

    def __str__(self) -> str:
        without_password = re.sub(r"(?<=://)([^/?#@:]*):[^/?#]*@", r"\1@", self.url)
        return re.sub(r"([?&](?:ssl)?password=)[^&#]*", r"\1***", without_password)

    __repr__ = __str__


if TYPE_CHECKING:
    StoreAddress = Path | PostgresAddress
else:
    # msgspec reads the annotations of structs, and supports a custom type such as Path only outside a union.
    StoreAddress = Any


def is_postgres_url(text: str) -> bool:
    """Return whether a string is the URL of a PostgreSQL database."""
    return text.startswith(("postgresql://", "postgres://"))


def make_postgres_address(url: str, home: Path) -> PostgresAddress:
    """Return the address of a database. Its local folder depends only on `home` and on the URL without the password."""
    without_password = str(PostgresAddress(url, home))
    return PostgresAddress(url, home / "stores" / sha256(without_password.encode()).hexdigest()[:12])


def make_local_path(store: StoreAddress, name: str) -> Path:
    """Return the path for a local file or folder that belongs to a store.

    The path is next to the database file of a SQLite store, or in the local folder of a PostgreSQL store.
    """
    return store.with_name(f"{store.name}-{name}") if isinstance(store, Path) else store.folder / name


def find_local_folder(store: StoreAddress) -> Path:
    """Return the folder on this machine that contains a store's local files."""
    return store.parent if isinstance(store, Path) else store.folder


def format_store_setting(store: StoreAddress) -> str:
    """Return the value of PODIUM_STORE for a process that uses the same store. It may contain a password."""
    return str(store) if isinstance(store, Path) else store.url


def require_known_queue(text: str) -> None:
    """Raise Mistake if this does not name the queue. The text may contain a password, so it is never in the message."""
    if text.startswith(("nats://", "tls://")):
        raise Mistake(
            "queues on NATS servers are no longer supported: a fleet's queue is in the store's database; remove this "
            "setting, and see podium doctor for runs that still wait on the NATS server"
        )
    if text != PGQUEUER:
        raise Mistake(f"expected {PGQUEUER}, the queue in the store's database")
