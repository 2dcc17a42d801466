"""Copy a user's saved rules to a PostgreSQL store, so that the rules also apply to the user's workers on hosts.

A rule is saved when the user answers a permission request with "always". The rules stay in a file on the user's
machine; the store contains a copy, which a host can read but not change. A rule applies to runs that were started on
the machine where the rule was saved. If it was saved for one repository, it applies only to runs in that repository.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

from ..values.store_address import PostgresAddress, StoreAddress
from .reader import StoreReader
from .run_creators import find_person_run
from .store_connection import open_connection, translate_errors

MOST_PARENTS = 20


class PublishedRule(NamedTuple):
    """A saved rule, and the folder of the repository where it applies. `repo` is empty if it applies everywhere."""

    rule: str
    repo: str


def publish_rules(store: StoreAddress, machine: str, rules: Sequence[PublishedRule]) -> None:
    """Replace the published rules of a machine. Do nothing for a SQLite store, which has no hosts."""
    if not isinstance(store, PostgresAddress):
        return
    with translate_errors(store), closing(open_connection(store, create=True)) as connection:
        connection.begin_write("saved rules")
        found = connection.execute("SELECT rule, repo FROM saved_rule WHERE machine = ?", (machine,)).fetchall()
        if {PublishedRule(*row) for row in found} != set(rules):
            connection.execute("DELETE FROM saved_rule WHERE machine = ?", (machine,))
            rows = [(machine, one.repo, one.rule) for one in dict.fromkeys(rules)]
            connection.executemany("INSERT INTO saved_rule (machine, repo, rule) VALUES (?, ?, ?)", rows)
        connection.execute("COMMIT")


def read_rules_for_run(store: StoreAddress, run: str) -> tuple[str, ...]:
    """Return the published rules that apply to a run. Only records that a person's login created count.

    These are the rules of the machine that delegated the run. If a worker delegated the run, they are the rules of the
    machine that delegated the first worker in the chain.
    """
    with StoreReader(store) as reader:
        origin = None
        for _ in range(MOST_PARENTS):
            if not (run := find_person_run(store, run)):
                break
            task = reader.read_summary(run).started.errand
            if task is None or task.origin is None:
                break
            origin = task.origin
            if not (run := task.parent):
                break
    if origin is None:
        return ()
    with translate_errors(store), closing(open_connection(store, create=False)) as connection:
        query = "SELECT rule FROM saved_rule WHERE machine = ? AND (repo = '' OR repo = ?) ORDER BY rule"
        return tuple(str(rule) for (rule,) in connection.execute(query, (origin.host, origin.path)))
