"""A SQLite store in the hands of a process that owns runs.

A lease is an epoch: taking over a run raises it, and a transaction that bears an older one is
refused. Letters are delivered as soon as somebody rings, and never looked for otherwise.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType

from anyio import CancelScope, to_thread

from ...core.timeline import Row
from ...values.errors import PodiumError, RunHeld
from ..wakeup import Bell, Ringer, bell_folder
from .attachment_rows import dropping, kept
from .mailbox import Letter, addressees, letters
from .reader import Reader
from .run_leases import LEASE_SECONDS, claim, enlist, renewal
from .schema import connect, explained
from .writer import Batch, Statement, Write, Writer

FEW_RUNS = 8


class SqliteLease:
    """The right to write to one run, until somebody takes it over."""

    def __init__(self, store: SqliteStore, run: str, epoch: int) -> None:
        self.run = run
        self.epoch = epoch
        self.error: PodiumError | None = None
        self.last_letter = 0
        self.deliver: Callable[[Letter], None] | None = None
        """Who takes the letters; until there is somebody they stay in the mailbox."""
        self._store = store
        self._last: Batch | None = None

    def append(self, row: Row, *, survives_power_loss: bool, mail: int | None) -> None:
        """Queue a row; with `mail`, the letter of that number is taken with it."""
        taken = None if mail is None else ("UPDATE mail SET taken = ? WHERE id = ?", (row.seq, mail))
        self.write(Write(self, row=row, after=taken, survives_power_loss=survives_power_loss))

    def write(self, write: Write) -> None:
        """Queue anything that only this lease's holder may write."""
        if self.error is not None:
            raise self.error
        self._last = self._store.writer.enqueue(write)

    async def settled(self, *, is_alone: bool = True) -> None:
        """Return when everything queued so far is written; raise when it could not be."""
        if self._last is not None and not self._last.done.is_set():
            if is_alone and self._store.is_quiet:
                self._store.writer.hurry()
            if not self._last.done.is_set():
                await self._last.done.wait()
        if self.error is not None:
            raise self.error


class SqliteStore:
    """A store opened for writing. Inside its block leases are renewed and letters delivered."""

    def __init__(self, path: Path, *, fault: Callable[[], None] | None = None) -> None:
        self.path = path
        self._fault = fault
        self._owner = secrets.token_hex(8)
        self._leases: dict[str, SqliteLease] = {}
        self._claiming: set[str] = set()

    async def __aenter__(self) -> SqliteStore:
        self._side = connect(self.path, create=True)
        with explained(self.path):
            enlist(self._side, self._owner)
        folder = bell_folder(self.path)
        self._bell = Bell(folder, "owner")
        self._ringer = Ringer(folder, "follower")
        self.writer = Writer(self.path, written=self._ringer.ring, fault=self._fault)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._bell, self._on_bell)
        self._renewal = self._loop.call_later(LEASE_SECONDS / 3, self._keep_leases)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Write what is queued, say goodbye and put everything away."""
        self._renewal.cancel()
        self._loop.remove_reader(self._bell)
        self.writer.enqueue(Write(None, after=("DELETE FROM owner WHERE id = ?", (self._owner,))))
        with CancelScope(shield=True):
            await self.writer.aclose()
        self._side.close()
        self._bell.close()
        self._ringer.close()

    # Runs

    @property
    def is_quiet(self) -> bool:
        """Whether so few runs are under way that waiting for others to share a transaction gains nothing."""
        return len(self._leases) <= FEW_RUNS

    def begin(self, run: str, beside: Statement | None = None) -> SqliteLease:
        """A new run, owned by this process; `beside` is written in the same transaction."""
        lease = self._leases[run] = SqliteLease(self, run, epoch=1)
        made = "INSERT INTO run (id, created, owner, epoch) VALUES (?, ?, ?, 1)"
        lease.write(Write(lease, before=(made, (run, time.time(), self._owner)), after=beside))
        return lease

    async def claim(self, run: str) -> SqliteLease:
        """Take over a run that no live process owns."""
        if run in self._leases or run in self._claiming:
            raise RunHeld(run, host=socket.gethostname(), pid=os.getpid())

        def take() -> int:
            with explained(self.path), closing(connect(self.path, create=False)) as connection:
                return claim(connection, run, self._owner)

        # The store tells processes apart, and not what goes on within one.
        self._claiming.add(run)
        try:
            epoch = await to_thread.run_sync(take)
        finally:
            self._claiming.discard(run)
        lease = self._leases[run] = SqliteLease(self, run, epoch)
        return lease

    def release(self, lease: SqliteLease, *, is_over: bool = False) -> None:
        """Give the run back; anybody may go on with it once that is settled, unless it is over."""
        self._leases.pop(lease.run, None)
        if not is_over:
            # Not as the lease's holder: one that could not write any more can still let go.
            let_go = "UPDATE run SET owner = NULL WHERE id = ? AND epoch = ?"
            lease._last = self.writer.enqueue(Write(None, after=(let_go, (lease.run, lease.epoch))))

    def attached(self, run: str, digest: str) -> bytes | None:
        """What came with a message to a run."""
        with explained(self.path):
            return kept(self._side, run, digest)

    def drop_attached(self, lease: SqliteLease, message: str) -> None:
        """Drop what came with a message that nobody heard."""
        lease.write(Write(lease, after=dropping(lease.run, message)))

    async def rows(self, run: str) -> list[Row]:
        """A run's whole timeline."""

        def read() -> list[Row]:
            with Reader(self.path) as reader:
                return reader.rows(run)

        return await to_thread.run_sync(read)

    def _keep_leases(self) -> None:
        self.writer.enqueue(Write(None, before=renewal(self._owner)))
        self._look_for_mail()  # in case somebody could not ring
        self._renewal = self._loop.call_later(LEASE_SECONDS / 3, self._keep_leases)

    # Letters

    def collect_mail(self, lease: SqliteLease) -> None:
        """Deliver what lies in a run's mailbox."""
        with explained(self.path):
            waiting = letters(self._side, lease.run, lease.last_letter)
        for letter in waiting:
            if lease.deliver is not None:
                lease.deliver(letter)
                lease.last_letter = letter.id

    def _on_bell(self) -> None:
        self._bell.hush()
        with suppress(PodiumError):
            self._ringer.look()
        self._ringer.ring()
        self._look_for_mail()

    def _look_for_mail(self) -> None:
        # Letters that cannot be taken now stay where they are, for whoever owns the run next.
        with suppress(PodiumError), explained(self.path):
            for run in addressees(self._side):
                if run in self._leases:
                    self.collect_mail(self._leases[run])
