"""The database functions that a host calls instead of writing to tables.

A host logs in with a role that cannot write to the tables of the store. The functions check the login, and return the
reason for a refusal as `refusal`. They do not raise an error, because that would also undo the record of the refusal.
"""

from __future__ import annotations

from typing import Any

import psycopg

from ...values.errors import LeaseLost, StoreCorrupt, StoreFailed
from ...values.store_address import PostgresAddress
from .. import write_statements as statements
from .login import parse_login

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


def require_accepted(cursor: psycopg.Cursor[Any]) -> None:
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
