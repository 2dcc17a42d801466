"""Complete and check the parameters for connecting to a PostgreSQL server.

Parameters that the URL omits come from libpq's environment variables, password file and service file, as in `psql`.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg.pq import Conninfo

from ...values.errors import Mistake
from ...values.store_address import PostgresAddress

SAFE_MODES = ("verify-ca", "verify-full")


def build_connection_options(store: PostgresAddress, settings: Mapping[str, str]) -> dict[str, Any]:
    """Return the options for a connection to a store. `settings` contains PostgreSQL settings to apply to the session.

    Raise Mistake if the URL is invalid, or if the connection could leave this machine without verified TLS.
    """
    given = parse_login(store)
    require_safe_connection(store, given)
    flags = " ".join(f"-c {name}={value}" for name, value in settings.items())
    return {
        "options": f"{given.get('options', '')} {flags}".strip(),
        "application_name": "podium",
        "connect_timeout": given.get("connect_timeout", "10"),
        # With these settings, the client detects before a lease expires that the server has vanished without closing
        # the connection.
        "keepalives_idle": 5,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 20_000,
    }


def parse_login(store: PostgresAddress) -> dict[str, str]:
    """Return the connection parameters from the URL and the environment. Raise Mistake if the URL is invalid."""
    try:
        parsed = Conninfo.parse(store.url.encode())
    except psycopg.OperationalError as error:
        raise Mistake(f"the store {store} is not a valid PostgreSQL address: {' '.join(str(error).split())}") from None
    found = {option.keyword.decode(): option.val for option in parsed}
    defaults = {option.keyword.decode(): option.val for option in Conninfo.get_defaults()}
    merged = {name: value if value is not None else defaults.get(name) for name, value in found.items()}
    return {name: value.decode() for name, value in merged.items() if value}


def replace_login(store: PostgresAddress, user: str, password: str) -> str:
    """Return a store's URL with another login. Parameters from the environment are not added to it."""
    parts = urlsplit(store.url)
    place = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{user}:{password}@{place}"))


def require_safe_connection(store: PostgresAddress, login: dict[str, str]) -> None:
    """Raise Mistake unless the server is on this machine or the connection verifies the server's certificate."""
    if not is_connection_local(login) and login.get("sslmode") not in SAFE_MODES:
        raise Mistake(
            f"the store {store} may be on another machine, and its connection is not verified by TLS; add "
            "?sslmode=verify-full to the address, and &sslrootcert=FILE if the server has its own certificate authority"
        )


def is_connection_local(login: Mapping[str, str]) -> bool:
    """Return whether these connection parameters refer only to servers on this machine."""
    places = (login.get("hostaddr") or login.get("host") or "").split(",")
    # The host in a service file is not known here.
    return all(map(is_on_this_machine, places)) and ("service" not in login or "host" in login)


def is_on_this_machine(host: str) -> bool:
    """Return whether a host is this machine: a Unix socket, `localhost` or a loopback address."""
    if not host or host.startswith(("/", "@")) or host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
