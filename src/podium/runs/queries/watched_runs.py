"""Read the states of runs that are being watched, and what has changed in them.

The states are kept in memory, so that only new entries have to be read each time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from threading import Lock

from ...store.reader import StoreReader
from ...values.event import decode_entry
from ...views.run_state.page_state import PageState, encode_state

MOST_RUNS = 8
"""The number of runs whose states are kept."""
MOST_CHANGES = 2000
"""The number of entries for which the changes of a run are kept, and the most that are returned at once."""


class RunStates:
    """The states of the runs of one store that were read last. Several threads can use it."""

    def __init__(self) -> None:
        self._watched: dict[str, _WatchedRun] = {}
        self._lock = Lock()

    def read_state(self, reader: StoreReader, run: str, *, at: int = 0) -> bytes:
        """Return the state of a run as JSON, after the entry `at` or, if that is 0, now."""
        if at:
            return encode_state(_build_state(reader, run, at))
        watched = self._find(run)
        with watched.lock:
            watched.read_news(reader, run)
            return encode_state(watched.state)

    def read_changes(self, reader: StoreReader, run: str, *, after: int, until: int = 0) -> Sequence[bytes]:
        """Return the changes of the entries after `after`, in order, up to the entry `until` if that is not 0.

        At most `MOST_CHANGES` are returned.
        """
        most = min(until - after, MOST_CHANGES) if until else MOST_CHANGES
        watched = self._find(run)
        with watched.lock:
            watched.read_news(reader, run)
            if after >= watched.first:
                return [*islice(watched.changes, after - watched.first, after - watched.first + most)]
        state = _build_state(reader, run, after)
        return [*state.apply_all(reader.read_entries(run, after, most))]

    def _find(self, run: str) -> _WatchedRun:
        with self._lock:
            found = self._watched[run] = self._watched.pop(run) if run in self._watched else _WatchedRun()
            while len(self._watched) > MOST_RUNS:
                del self._watched[next(iter(self._watched))]
            return found


class _WatchedRun:
    """The state of a run, and the changes that led to it from the entry `first` on."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.state = PageState()
        self.changes: deque[bytes] = deque(maxlen=MOST_CHANGES)

    @property
    def first(self) -> int:
        return self.state.seq - len(self.changes)

    def read_news(self, reader: StoreReader, run: str) -> None:
        """Apply the new entries. The changes are recorded only once somebody has got the state."""
        entries = (decode_entry(line, run=run) for _, line in reader.read_lines(run, self.state.seq))
        if self.state.seq:
            self.changes.extend(self.state.apply_all(entries))
        else:
            for entry in entries:
                self.state.apply(entry)


def _build_state(reader: StoreReader, run: str, seq: int) -> PageState:
    """Return the state of a run after an entry."""
    state = PageState()
    for _, line in reader.read_lines(run, most=seq):
        state.apply(decode_entry(line, run=run))
    return state
