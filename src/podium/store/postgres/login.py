"""Complete and check the parameters for connecting to a PostgreSQL server.

Parameters that the URL omits come from libpq's environment variables, password file and service file, as in `psql`.

A host logs in with a role that cannot write to the tables of the store. It calls database functions, which check the
login, and return the reason for a refusal as `refusal`. They do not raise an error, because that would also undo the
record of the refusal.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg.pq import Conninfo

from ...values.errors import LeaseLost, Mistake, StoreCorrupt, StoreFailed
from ...values.store_address import PostgresAddress
from .. import write_statements as statements

LOGIN_PREFIX = "podium_host_"
APPEND_AS_HOST = b"SELECT append_entries_as_host(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s) AS refusal"
_NOTHING = "SELECT NULL AS refusal WHERE %s IS NOT NULL"
AS_HOST = {
    statements.RENEW_OWNER: "SELECT renew_owner_as_host(%s, %s, %s, %s, %s, %s) AS refusal",
    # A host never deletes owners: all its processes share one owner id, and other processes delete expired owners.
    statements.DELETE_OLD_OWNERS: _NOTHING,
    statements.DELETE_OWNER: _NOTHING,
    statements.INSERT_RUN: "SELECT begin_run_as_host(run, owner) AS refusal"
    " FROM (VALUES (%s, %s::float8, %s)) AS given (run, created, owner)",
    statements.TAKE_OVER_RUN: "SELECT claimed.epoch, claimed.refusal FROM (VALUES (%s, %s)) AS given (owner, run),"
    " claim_run_as_host(given.run, given.owner) AS claimed",
    statements.RELEASE_RUN: "SELECT NULL AS refusal, release_run_as_host(id, owner, epoch) FROM run"
    " WHERE id = %s AND epoch = %s",
    statements.INSERT_MAIL: "SELECT post_mail_as_host(run, ref, line) AS refusal"
    " FROM (VALUES (%s, %s, %s::float8, %s)) AS given (run, ref, at, line)",
    statements.INSERT_WORKER: "SELECT add_worker_as_host(%s, %s, %s) AS refusal",
    statements.INSERT_WORKER_AND_JOB: "SELECT coalesce(add_worker_as_host(%s, %s, %s),"
    " add_job_as_host(%s, %s, %s, %s, %s, %s, %s, %s, %s)) AS refusal",
    statements.CLOSE_WORKER: "SELECT close_worker_as_host(%s) AS refusal",
    statements.INSERT_ARTIFACT: "SELECT store_artifact_as_host(%s, %s) AS refusal",
    statements.DELETE_ATTACHMENTS: "SELECT drop_attachments_as_host(%s, %s) AS refusal",
}
"""Maps each statement to the query that a host executes instead, with the same values."""


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
    return all(map(_is_on_this_machine, places)) and ("service" not in login or "host" in login)


def _is_on_this_machine(host: str) -> bool:
    """Return whether a host is this machine: a Unix socket, `localhost` or a loopback address."""
    if not host or host.startswith(("/", "@")) or host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def find_host_name(store: PostgresAddress) -> str:
    """Return the name of the host that the login in a store's address belongs to.

    Return an empty string if the login does not belong to a host.
    """
    user = parse_login(store).get("user", "")
    return user.removeprefix(LOGIN_PREFIX) if user.startswith(LOGIN_PREFIX) else ""


def build_gap_error(run: str) -> StoreCorrupt:
    """Return the error for a run whose last entries the server no longer has."""
    return StoreCorrupt(
        f"the store has lost entries of run {run}: its PostgreSQL server was replaced by a standby that lagged, or "
        "restored from a backup, while the run was active; nothing more was written. Restore the server, or check the "
        f"run's last actions and continue with: podium resume {run} --accept-loss"
    )


def require_accepted(cursor: psycopg.Cursor) -> None:
    """Raise LeaseLost or StoreFailed if the database function refused this host's write."""
    names = [column.name for column in cursor.description or ()]
    rows = cursor.fetchall()
    for row in rows:
        refusal = row[names.index("refusal")]
        if refusal in ("lease", "held", "over", "full"):
            raise LeaseLost(f"this host does not own the run ({refusal}), so it can no longer write to it")
        if refusal is not None and refusal.startswith("lost "):
            raise build_gap_error(refusal.removeprefix("lost "))
        if refusal is not None:
            raise StoreFailed(f"the store refused a write by this host ({refusal}); see the table podium.refusal")
    if rows:
        cursor.scroll(0, mode="absolute")  # go back to the first row, because the caller reads the rows too
