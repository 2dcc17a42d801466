"""Open a store for writing, in a process that owns runs.

Each lease has an epoch: taking over a run increments it, and a transaction with an older epoch is rejected. Mailbox
messages are delivered when another process sends a wakeup and, in case a wakeup is lost, when leases are renewed.

All writes go through one queue, in order. Writes that are queued during one iteration of the event loop, or while a
transaction is in progress, share the next transaction. If the committer cannot commit a batch on the event loop at
once, a thread commits it. All queue state belongs to the event loop; the thread only commits batches.
"""

from __future__ import annotations

import asyncio
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from types import TracebackType

from anyio import CancelScope, to_thread

from ..core.journal_rows import JournalRow
from ..values.errors import PodiumError, RunHeld, StoreFailed, explain_full_disk
from ..values.event import Entry, MessageReceived
from ..values.store_address import PostgresAddress, StoreAddress
from .attachment_rows import build_attachment_delete, select_attachment, select_attachments
from .decision_rows import select_decision_entries
from .mailbox import MailboxMessage, find_runs_with_mail, read_mailbox
from .reader import StoreReader
from .run_leases import OwnerId, build_lease_renewal, register_owner, take_over_run
from .sql_connection import SqlConnection, Statement
from .store_connection import open_committer, open_connection, translate_errors
from .store_write import Committer, LeaseHolder, Write
from .wakeup import open_follower_wakeups, open_wakeup
from .write_statements import DELETE_OWNER, INSERT_ARTIFACT, INSERT_RUN, RELEASE_RUN, TAKE_MAIL

_get_row = attrgetter("row")


@dataclass(slots=True)
class Batch:
    """The writes in one transaction, and the holders whose writes were rejected."""

    writes: list[Write] = field(default_factory=list)
    refused: list[tuple[LeaseHolder, PodiumError]] = field(default_factory=list)
    done: asyncio.Event = field(default_factory=asyncio.Event)


class StoreWriter:
    """The writer for the runs that this process owns. `on_written` is called after rows are committed."""

    def __init__(
        self, committer: Committer, *, on_written: Callable[[], None], fault: Callable[[], None] | None = None
    ) -> None:
        self._committer = committer
        self._on_written = on_written
        self._fault = fault
        self._refusal: PodiumError | None = None
        self._loop = asyncio.get_running_loop()
        self._pending = Batch()
        self._is_due = False
        self._is_committing = False
        self._is_closed = False
        self._to_thread: queue.SimpleQueue[Batch | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._commit_batches, name="podium-store", daemon=True)
        self._thread.start()

    def enqueue(self, write: Write) -> Batch:
        """Queue a write, and return the batch that it will be part of. Raise StoreFailed if the writer is closed."""
        if self._is_closed:
            raise StoreFailed("this App is closed; open another App to continue")
        if not self._is_due and not self._is_committing:
            self._is_due = True
            self._loop.call_soon(self.start_batch)
        self._pending.writes.append(write)
        return self._pending

    async def aclose(self) -> None:
        """Commit everything queued, then close the connections."""
        await self.enqueue(Write(None)).done.wait()
        self._is_closed = True
        self._to_thread.put(None)
        self._thread.join()
        self._committer.close()

    # On the event loop

    def start_batch(self) -> None:
        """Start committing the queued writes, unless a batch is already being committed."""
        self._is_due = False
        if self._is_committing or not self._pending.writes:
            return
        batch, self._pending = self._pending, Batch()
        # After a holder's write fails, all its later writes are rejected, so that no timeline has a gap.
        batch.writes = [write for write in batch.writes if write.holder is None or write.holder.error is None]
        if self._fault is None and self._committer.try_commit_at_once(batch.writes):
            self._notify_written(batch)
            batch.writes.clear()
            batch.done.set()
        else:
            self._is_committing = True
            self._to_thread.put(batch)

    def _on_batch_done(self, batch: Batch) -> None:
        for holder, error in batch.refused:
            holder.error = holder.error or error
        batch.done.set()
        self._is_committing = False
        self.start_batch()

    def _notify_written(self, batch: Batch) -> None:
        if any(map(_get_row, batch.writes)):
            self._on_written()

    # In the thread

    def _commit_batches(self) -> None:
        while (batch := self._to_thread.get()) is not None:
            parts = [batch.writes] if self._fault is None else [[write] for write in batch.writes]
            for writes in parts:
                self._commit_or_split(batch, writes)
            self._notify_written(batch)
            # The holder refers to its last batch, and the batch's writes refer to the holder: break that cycle.
            batch.writes.clear()
            self._loop.call_soon_threadsafe(self._on_batch_done, batch)

    def _commit_or_split(self, batch: Batch, writes: Sequence[Write]) -> None:
        """Commit the writes together; if that fails, commit them run by run, so that a failure affects only one run."""
        try:
            if self._refusal is not None:
                raise self._refusal
            self._committer.commit(writes)
        except Exception as caught:
            # Catch every error: if an unexpected error ended the thread, all later writes would wait forever.
            full = explain_full_disk(caught)
            error = (
                caught
                if isinstance(caught, PodiumError)
                else StoreFailed(full or f"internal error in Podium: {caught!r}")
            )
            holders = {id(write.holder): write.holder for write in writes}
            if len(holders) == 1:
                batch.refused += [(holder, error) for holder in holders.values() if holder is not None]
                return
            for holder in holders.values():
                self._commit_or_split(batch, [write for write in writes if write.holder is holder])
            return
        if self._fault is not None and writes[0].row is not None:
            try:
                self._fault()
            except PodiumError as error:
                self._refusal = error


FEW_RUNS = 8


class RunLease:
    """The right to write to a run until another process takes over the run."""

    def __init__(self, store: RunStore, run: str, epoch: int) -> None:
        self.run = run
        self.epoch = epoch
        self.error: PodiumError | None = None
        self.last_message = 0
        self.deliver: Callable[[MailboxMessage], None] | None = None
        """Called with each mailbox message. While this is None, messages stay in the mailbox."""
        self._store = store
        self._last: Batch | None = None

    def append(self, row: JournalRow, *, survives_power_loss: bool, mail: int | None) -> None:
        """Queue a row; with `mail`, the message with that id is marked as taken in the same transaction."""
        taken = None if mail is None else (TAKE_MAIL, (row.seq, mail))
        self.queue_write(Write(self, None, row, taken, survives_power_loss))

    def queue_write(self, write: Write) -> None:
        """Queue a write that only the holder of this lease can make."""
        if self.error is not None:
            raise self.error
        self._last = self._store.writer.enqueue(write)

    async def wait_written(self, *, is_alone: bool = True) -> None:
        """Wait until all queued writes are committed. If a write failed, raise its error.

        If `is_alone` is true and few runs are active, commit the writes at once, without waiting for other writes.
        """
        if self._last is not None and not self._last.done.is_set():
            if is_alone and self._store.has_few_runs:
                self._store.writer.start_batch()
            if not self._last.done.is_set():
                await self._last.done.wait()
        if self.error is not None:
            raise self.error


class RunStore:
    """A store opened for writing. Within its block, leases are renewed and mailbox messages delivered."""

    def __init__(
        self, path: StoreAddress, *, owner: OwnerId | None = None, fault: Callable[[], None] | None = None
    ) -> None:
        self.path = path
        self.owner = owner or OwnerId()
        self._fault = fault
        self._leases: dict[str, RunLease] = {}
        self._claiming: set[str] = set()
        self._attachments: dict[str, dict[str, bytes]] = {}
        """The attachments of active runs in a PostgreSQL store, by run and digest."""
        self._is_reading_mail = False
        self._is_mail_due = False
        self._is_closed = False

    async def __aenter__(self) -> RunStore:
        self._connection = open_connection(self.path, create=True)
        with translate_errors(self.path):
            register_owner(self._connection, self.owner)
        self._wakeup = open_wakeup(self.path, "owner")
        self._follower_wakeups = open_follower_wakeups(self.path)
        self.writer = StoreWriter(
            open_committer(self.path, self.owner.id), on_written=self._follower_wakeups.wake_all, fault=self._fault
        )
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._wakeup, self._on_wakeup)
        self._renewal = self._loop.call_later(self.owner.lease_seconds / 3, self._renew_leases)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Commit all queued writes, unregister this owner and close all connections."""
        self._is_closed = True
        self._renewal.cancel()
        self._loop.remove_reader(self._wakeup)
        self.writer.enqueue(Write(None, after=(DELETE_OWNER, (self.owner.id,))))
        with CancelScope(shield=True):
            await self.writer.aclose()
        self._connection.close()
        self._wakeup.close()
        self._follower_wakeups.close()

    # Runs

    @property
    def has_few_runs(self) -> bool:
        """Whether so few runs are active that it is not worth waiting for other writes to share a transaction."""
        return len(self._leases) <= FEW_RUNS

    def begin_run(self, run: str, beside: Statement | None = None) -> RunLease:
        """Create a run owned by this process. `beside` is a statement to execute in the same transaction."""
        lease = self._leases[run] = RunLease(self, run, epoch=1)
        lease.queue_write(Write(lease, before=(INSERT_RUN, (run, time.time(), self.owner.id)), after=beside))
        return lease

    async def claim_run(self, run: str) -> RunLease:
        """Take over a run. Raise RunHeld if a live process owns it, and NoSuchRun if there is no such run."""
        if run in self._leases or run in self._claiming:
            raise RunHeld(run, host=socket.gethostname(), pid=os.getpid())

        def take_over() -> int:
            with translate_errors(self.path), closing(open_connection(self.path, create=False)) as connection:
                epoch = take_over_run(connection, run, self.owner.id)
                if isinstance(self.path, PostgresAddress):
                    self._attachments[run] = select_attachments(connection, run)
                return epoch

        # The store distinguishes owner processes, but not two claims within one process.
        self._claiming.add(run)
        try:
            epoch = await to_thread.run_sync(take_over)
        finally:
            self._claiming.discard(run)
        lease = self._leases[run] = RunLease(self, run, epoch)
        return lease

    def release_run(self, lease: RunLease, *, is_over: bool = False) -> None:
        """Release a run, so that another process can claim it. If the run has ended (`is_over`), write nothing."""
        self._leases.pop(lease.run, None)
        self._attachments.pop(lease.run, None)
        if not is_over:
            # This write does not require the lease: a holder whose write was rejected must still be able to release it.
            lease._last = self.writer.enqueue(Write(None, after=(RELEASE_RUN, (lease.run, lease.epoch))))

    def read_attachment(self, run: str, digest: str) -> bytes | None:
        """Return the data of a run's attachment, or None if the run does not have it."""
        if (known := self._attachments.get(run, {}).get(digest)) is not None:
            return known
        with translate_errors(self.path):
            return select_attachment(self._connection, run, digest)

    def drop_attachments(self, lease: RunLease, message: str) -> None:
        """Delete the attachments of a message that no agent received."""
        lease.queue_write(Write(lease, after=build_attachment_delete(lease.run, message)))

    def store_artifact(self, lease: RunLease, digest: str, data: bytes) -> None:
        """Store the content of an artifact under its digest. Content that already exists is not stored again."""
        lease.queue_write(Write(lease, after=(INSERT_ARTIFACT, (digest, data))))

    def read_decision_entries(self) -> list[Entry]:
        """Return the entries for proposals, closed votes and outcomes of decisions, oldest first."""
        with translate_errors(self.path):
            return select_decision_entries(self._connection)

    async def read_rows(self, run: str) -> list[JournalRow]:
        """Return a run's whole timeline."""

        def read_timeline() -> list[JournalRow]:
            with StoreReader(self.path) as reader:
                return reader.read_rows(run)

        return await to_thread.run_sync(read_timeline)

    def _renew_leases(self) -> None:
        self.writer.enqueue(Write(None, before=build_lease_renewal(self.owner)))
        self._deliver_all_mail()  # in case a sender could not send its wakeup
        self._renewal = self._loop.call_later(self.owner.lease_seconds / 3, self._renew_leases)

    # Mailbox messages

    async def deliver_mail(self, lease: RunLease) -> None:
        """Deliver the messages in a run's mailbox."""
        if isinstance(self.path, Path):
            with translate_errors(self.path):
                waiting = read_mailbox(self._connection, lease.run, lease.last_message)
        else:
            waiting = await to_thread.run_sync(self._read_mail, lease)
        self._deliver(waiting)

    def _read_mail(self, lease: RunLease) -> list[MailboxMessage]:
        """Return a run's messages that have not been delivered yet, and remember their attachments."""
        with translate_errors(self.path), closing(open_connection(self.path, create=False)) as connection:
            waiting = list(read_mailbox(connection, lease.run, lease.last_message))
            self._remember_attachments(connection, waiting)
            return waiting

    def _remember_attachments(self, connection: SqlConnection, messages: Iterable[MailboxMessage]) -> None:
        """Read the attachments of messages from PostgreSQL now, so that the event loop never waits for the server."""
        if isinstance(self.path, Path):
            return
        for message in messages:
            if isinstance(message.event, MessageReceived) and message.event.attachments:
                found = select_attachments(connection, message.run)
                self._attachments.setdefault(message.run, {}).update(found)

    def _on_wakeup(self) -> None:
        self._wakeup.drain()
        with suppress(PodiumError):
            self._follower_wakeups.find_sockets()
        self._follower_wakeups.wake_all()
        self._deliver_all_mail()

    def _deliver_all_mail(self) -> None:
        # Messages that cannot be delivered now stay in the mailbox for the run's next owner.
        if isinstance(self.path, Path):
            with suppress(PodiumError):
                self._deliver(self._read_all_mail(self._connection))
        elif self._is_reading_mail:
            self._is_mail_due = True
        else:
            # The event loop does not wait for a server, which may be slow or unavailable.
            self._is_reading_mail, self._is_mail_due = True, False
            self._loop.run_in_executor(None, self._read_all_mail).add_done_callback(self._on_mail_read)

    def _on_mail_read(self, reading: asyncio.Future[list[MailboxMessage]]) -> None:
        self._is_reading_mail = False
        if not reading.cancelled() and reading.exception() is None:
            self._deliver(reading.result())
        if self._is_mail_due and not self._is_closed:
            self._deliver_all_mail()

    def _read_all_mail(self, connection: SqlConnection | None = None) -> list[MailboxMessage]:
        """Return the undelivered messages in the mailboxes of all runs of this process."""
        if connection is None:
            with closing(open_connection(self.path, create=False)) as own:
                return self._read_all_mail(own)
        with translate_errors(self.path):
            leases = [self._leases[run] for run in find_runs_with_mail(connection) if run in self._leases]
            found = [one for lease in leases for one in read_mailbox(connection, lease.run, lease.last_message)]
            self._remember_attachments(connection, found)
            return found

    def _deliver(self, messages: Iterable[MailboxMessage]) -> None:
        for message in messages:
            lease = self._leases.get(message.run)
            if lease is not None and lease.deliver is not None and message.id > lease.last_message:
                lease.deliver(message)
                lease.last_message = message.id
