"""Following a run from any process: what is on its timeline, and then what comes, as it comes."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from types import TracebackType

from anyio import to_thread, wait_readable

from ..values.event import Entry, RunEnded, RunPaused, decode_entry
from .sqlite.reader import StoreReader
from .wakeup import WakeupSocket, ensure_socket_folder, send_wakeup

PAGE = 1000


class Follower:
    """The entries of one run in order; ends after the entry that ends or pauses the run.

    It waits for a bell and never polls. A slow reader slows nobody but itself.
    """

    def __init__(self, path: Path, run: str, after: int = 0) -> None:
        self._run = run
        self._after = after
        self._waiting: deque[Entry] = deque()
        self._is_over = False
        self._is_finishing = False
        self._is_closed = False
        self._reader = StoreReader(path)
        # The bell hangs before the first look, and an owner that hears of it rings back: whatever
        # it wrote before it knew of this bell is seen then.
        folder = ensure_socket_folder(path)
        self._wakeup = WakeupSocket(folder, "follower")
        send_wakeup(folder, "owner")

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
        """Give what there is and then end: nobody works on the run any more."""
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
            # Asked before the look: what was written until the run was let go is seen by the look after.
            is_last_look = self._is_finishing
            rows = await to_thread.run_sync(self._reader.read_rows, self._run, self._after, PAGE)
            self._waiting.extend(decode_entry(row.line) for row in rows)
            if self._waiting:
                self._after = self._waiting[-1].seq
                self._is_over = len(rows) < PAGE and isinstance(self._waiting[-1].event, RunEnded | RunPaused)
            elif is_last_look:
                self._is_over = True
            else:
                await wait_readable(self._wakeup)
        return self._waiting.popleft()
