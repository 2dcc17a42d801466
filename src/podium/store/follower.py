"""Follow a run from any process: read its existing entries, then each new entry as it is written."""

from __future__ import annotations

from collections import deque
from types import TracebackType

from anyio import to_thread, wait_readable

from ..values.event import Entry, Event, RunEnded, RunPaused, decode_entry
from ..values.store_address import StoreAddress
from .reader import StoreReader
from .wakeup import open_wakeup, send_wakeup

PAGE = 1000


class Follower:
    """An iterator over one run's entries, in order.

    Iteration stops after the entry that records the end of the run, or a pause that lasts until somebody resumes the
    run. The follower reads new entries whenever it is woken; a PostgreSQL store also wakes it once a second. A slow
    reader delays only itself.
    """

    def __init__(self, path: StoreAddress, run: str, after: int = 0) -> None:
        self._run = run
        self._after = after
        self._waiting: deque[Entry] = deque()
        self._is_over = False
        self._is_finishing = False
        self._is_closed = False
        self._reader = StoreReader(path)
        # Open the wakeup before the first read, then wake the owners. An owner that is woken looks for new followers
        # and wakes them, so this follower also reads the entries that are written in the meantime.
        self._wakeup = open_wakeup(path, "follower")
        send_wakeup(path, "owner")

    def __enter__(self) -> Follower:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._is_closed = True
        self._wakeup.close()
        self._reader.close()

    def finish(self) -> None:
        """End the iteration after the entries written so far. Called when this process stops working on the run."""
        self._is_finishing = True
        if not self._is_closed:
            self._wakeup.wake()

    def __aiter__(self) -> Follower:
        return self

    async def __anext__(self) -> Entry:
        while not self._waiting:
            if self._is_over:
                self.close()
                raise StopAsyncIteration
            self._wakeup.drain()
            # Read the flag before the rows: this read then sees everything written before `finish` was called.
            is_last_look = self._is_finishing
            rows = await to_thread.run_sync(self._reader.read_rows, self._run, self._after, PAGE)
            self._waiting.extend(decode_entry(row.line) for row in rows)
            if self._waiting:
                self._after = self._waiting[-1].seq
                self._is_over = len(rows) < PAGE and _ends_timeline(self._waiting[-1].event)
            elif is_last_look:
                self._is_over = True
            else:
                await wait_readable(self._wakeup)
        return self._waiting.popleft()


def _ends_timeline(event: Event) -> bool:
    """Return whether a follower stops after this event: the run ended, or paused until somebody resumes it."""
    # A run that is paused until a given time continues by itself.
    return isinstance(event, RunEnded) or (isinstance(event, RunPaused) and not event.until)
