"""Write to a store through one queue, in order, in as few transactions as possible.

Writes that are queued during one iteration of the event loop, or while a transaction is in progress, share the next
transaction. If the committer cannot commit a batch on the event loop at once, a thread commits it. All queue state
belongs to the event loop; the thread only commits batches.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from ..values.errors import PodiumError, StoreFailed, explain_full_disk
from .store_write import Committer, LeaseHolder, Write

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
