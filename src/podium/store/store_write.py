"""Define a write to a store, and the interface of the committers that commit batches of writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, NoReturn, Protocol

from ..core.journal_rows import JournalRow
from ..values.errors import LeaseLost, PodiumError
from .sql_connection import Statement


class LeaseHolder(Protocol):
    """A run's writer. Its writes are rejected once its epoch is outdated or one of its writes has failed."""

    run: str
    epoch: int
    error: PodiumError | None


class Write(NamedTuple):
    """A row and the statements before and after it, written atomically."""

    holder: LeaseHolder | None
    before: Statement | None = None
    row: JournalRow | None = None
    after: Statement | None = None
    survives_power_loss: bool = False


class Committer(Protocol):
    """Commits batches of writes to one store."""

    def try_commit_at_once(self, writes: Sequence[Write]) -> bool:
        """Commit writes on the event loop. Return False if nothing was committed; the caller then uses `commit`."""
        ...

    def commit(self, writes: Sequence[Write]) -> None:
        """Commit writes in one transaction, in the writer's thread.

        Raise LeaseLost if another process has taken over one of the runs, and StoreFailed or StoreCorrupt if the
        store cannot be written.
        """
        ...

    def close(self) -> None: ...


def raise_lease_lost(run: str) -> NoReturn:
    """Raise LeaseLost for a run that another process has taken over."""
    raise LeaseLost(f"run {run} was taken over by another process; this process can no longer write to it")
