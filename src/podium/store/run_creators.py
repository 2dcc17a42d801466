"""Read which database login created a run, and confirm a run whose login is not known.

A host of a fleet can write any first entry into the runs that it creates, so other machines have to know which runs
these are. In a SQLite store, all runs are the user's own.
"""

from __future__ import annotations

from contextlib import closing
from typing import NamedTuple

from ..values.store_address import PostgresAddress, StoreAddress
from .store_connection import open_connection, open_for_reading, translate_errors

HOST_PREFIX = "podium_host_"
"""The prefix of the logins of hosts."""


class RunCreator(NamedTuple):
    """The login that created a run.

    `is_own` says whether this process uses the same login. `parent` is the run for which a host created the run; it is
    empty for a scheduled run, and None if the host has named none.
    """

    login: str
    is_host: bool
    is_own: bool
    parent: str | None = None

    @property
    def is_unknown(self) -> bool:
        """Whether the run is older than the record of logins, and a host may have created it."""
        return not self.login

    @property
    def host(self) -> str:
        """The name of the host that created the run."""
        return self.login.removeprefix(HOST_PREFIX)


def find_foreign_creator(store: StoreAddress, run: str) -> RunCreator | None:
    """Return who created a run, or None if a person's login did."""
    return _find_foreign_creators(store, (run,)).get(run)


def _find_foreign_creators(store: StoreAddress, runs: tuple[str, ...]) -> dict[str, RunCreator]:
    """Return who created the runs that were not created by a person's login, as far as is known, keyed by run."""
    if not isinstance(store, PostgresAddress) or not runs:
        return {}
    query = (
        "SELECT id, login, login != '', login = session_user, parent FROM run"
        f" WHERE id IN ({', '.join('?' * len(runs))}) AND (login = '' OR is_host_login(login))"
    )
    with translate_errors(store), closing(open_for_reading(store)) as connection:
        return {
            str(id): RunCreator(login=login, is_host=is_host, is_own=is_own, parent=parent)
            for id, login, is_host, is_own, parent in connection.execute(query, runs)
        }


def find_person_run(store: StoreAddress, run: str) -> str:
    """Return the run that a person's login created and that led to a run, which can be the run itself.

    Return an empty string if there is none, for example for a scheduled run that a host started.
    """
    known: set[str] = set()
    while run and run not in known:
        creator = find_foreign_creator(store, run)
        if creator is None:
            return run
        known.add(run)
        run = creator.parent or ""
    return ""


def list_person_runs(store: StoreAddress) -> list[str]:
    """Return the runs that this process's login created. In a SQLite store, these are all runs."""
    where = " WHERE login = session_user AND NOT is_host_login(login)" if isinstance(store, PostgresAddress) else ""
    with translate_errors(store), closing(open_for_reading(store)) as connection:
        return [str(run) for (run,) in connection.execute(f"SELECT id FROM run{where} ORDER BY created, id")]


def list_unconfirmed_runs(store: StoreAddress) -> list[str]:
    """Return the unfinished runs whose creator is not known, oldest first."""
    if not isinstance(store, PostgresAddress):
        return []
    with translate_errors(store), closing(open_for_reading(store)) as connection:
        found = connection.execute(
            "SELECT id FROM run WHERE login = '' AND NOT EXISTS"
            " (SELECT 1 FROM entry WHERE entry.run = run.id AND kind = 'run_ended') ORDER BY created, id"
        )
        return [str(run) for (run,) in found]


def confirm_run(store: StoreAddress, run: str) -> bool:
    """Record that this process's login vouches for a run whose creator is not known. Return whether it was not known.

    A host's login cannot do this.
    """
    if not isinstance(store, PostgresAddress):
        return False
    creator = find_foreign_creator(store, run)
    if creator is None or not creator.is_unknown:
        return False
    with translate_errors(store), closing(open_connection(store, create=False)) as connection:
        connection.execute("UPDATE run SET login = session_user WHERE id = ? AND login = ''", (run,))
    return True
