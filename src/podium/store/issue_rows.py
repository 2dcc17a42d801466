"""Store which issues from a source were claimed, so that no issue is ever worked on twice.

An issue is claimed, with its text at that time, before any work on it starts. The ids of its runs are derived from the
claim, so if a process is killed while it starts a run, the run can still be found. A comment is recorded as `posting`
before it is posted.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

from ..values.store_address import StoreAddress
from .sql_connection import SqlValue
from .store_connection import open_connection, open_for_reading, translate_errors

COLUMNS = (
    "source, issue, token, claimed, root, title, body, author, url, state, agent, branch, note, comment, comment_at,"
    " comment_tries, comment_url"
)

ClaimState = Literal["claimed", "triage", "work", "person", "succeeded", "failed", "stopped"]
"""The state of an issue. `person` means that triage left it to a person; the last three say how the work ended."""

CommentState = Literal["", "wanted", "posting", "posted", "failed"]

ACTIVE_STATES: tuple[ClaimState, ...] = ("claimed", "triage", "work")
"""The states in which an agent still has work to do."""

_OPEN = "(state = 'claimed' OR state = 'triage' OR state = 'work' OR comment = 'wanted' OR comment = 'posting')"


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueClaim:
    """A claimed issue. Times are in seconds since the epoch.

    `root` is the folder to work in. `body` is removed when the work starts or the issue is left to a person.
    `agent` is empty until one is chosen. `note` is the reason for the choice, or why a run could not be started.
    """

    source: str
    issue: str
    token: str
    claimed: float
    root: str
    title: str
    body: str
    author: str = ""
    url: str = ""
    state: ClaimState = "claimed"
    agent: str = ""
    branch: str = ""
    note: str = ""
    comment: CommentState = ""
    comment_at: float = 0.0
    comment_tries: int = 0
    comment_url: str = ""

    @property
    def triage_run(self) -> str:
        """The id of the run that chooses the agent."""
        return self._make_run_id("triage")

    @property
    def run(self) -> str:
        """The id of the run that works on the issue."""
        return self._make_run_id("work")

    @property
    def is_active(self) -> bool:
        return self.state in ACTIVE_STATES

    def _make_run_id(self, what: str) -> str:
        return sha256(f"issue {what} {self.source} {self.issue} {self.token}".encode()).hexdigest()[:12]


class IssueClaims:
    """The claimed issues in a store. Once a call returns, its change survives power loss."""

    def __init__(self, store: StoreAddress) -> None:
        self._store = store

    def find_known(self, source: str, issues: Sequence[str]) -> set[str]:
        """Return the given issues that have already been claimed."""
        if not issues or not self._store.exists():
            return set()
        marks = ", ".join("?" * len(issues))
        with translate_errors(self._store), closing(open_for_reading(self._store)) as connection:
            found = connection.execute(
                f"SELECT issue FROM issue_claim WHERE source = ? AND issue IN ({marks})", (source, *issues)
            )
            return {str(row[0]) for row in found}

    def add(self, claim: IssueClaim) -> bool:
        """Claim an issue. Return False if it was already claimed."""
        names = COLUMNS.split(", ")
        sql = f"INSERT INTO issue_claim ({COLUMNS}) VALUES ({', '.join('?' * len(names))}) ON CONFLICT DO NOTHING"
        return self._execute(sql, [getattr(claim, name) for name in names], create=True) == 1

    def update(self, claim: IssueClaim, **changes: SqlValue) -> bool:
        """Change fields of a claim. Return False, and change nothing, if its state or comment has since changed."""
        columns = ", ".join(f"{name} = ?" for name in changes)
        changed = self._execute(
            f"UPDATE issue_claim SET {columns} WHERE source = ? AND issue = ? AND token = ? AND state = ?"
            " AND comment = ? AND comment_tries = ?",
            (
                *changes.values(),
                *(claim.source, claim.issue, claim.token, claim.state, claim.comment, claim.comment_tries),
            ),
        )
        return changed == 1

    def remove(self, claim: IssueClaim) -> None:
        """Delete a claim, so that the issue counts as new again."""
        where = "source = ? AND issue = ? AND token = ?"
        self._execute(f"DELETE FROM issue_claim WHERE {where}", (claim.source, claim.issue, claim.token))

    def list_open(self, source: str) -> list[IssueClaim]:
        """Return a source's claims that are unfinished or whose comment has not been posted yet, oldest first."""
        return self._select(f"WHERE source = ? AND {_OPEN} ORDER BY claimed, issue", (source,))

    def list_all(self, source: str = "", *, most: int) -> list[IssueClaim]:
        """Return the newest claims of a source, or of all sources, newest first."""
        which = "WHERE source = ?" if source else ""
        given = (source, most) if source else (most,)
        return self._select(f"{which} ORDER BY claimed DESC, source, issue LIMIT ?", given)

    def _execute(self, sql: str, values: Sequence[SqlValue], *, create: bool = False) -> int:
        """Run a statement and return the number of rows that it changed."""
        with translate_errors(self._store), closing(open_connection(self._store, create=create)) as connection:
            connection.set_durable(True)
            return connection.execute(sql, values).rowcount

    def _select(self, which: str, values: Sequence[SqlValue]) -> list[IssueClaim]:
        if not self._store.exists():
            return []
        with translate_errors(self._store), closing(open_for_reading(self._store)) as connection:
            rows = connection.execute(f"SELECT {COLUMNS} FROM issue_claim {which}", values)
            return [IssueClaim(**dict(zip(COLUMNS.split(", "), row, strict=True))) for row in rows]
