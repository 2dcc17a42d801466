"""Read the states of runs. A team whose members work elsewhere is several runs, each with a state of the same kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from ...store.reader import StoreReader
from ...views.run_state import RunState


class HasWorkers(Protocol):
    """What is known about a run, including the runs of the workers that it started."""

    @property
    def worker_runs(self) -> Iterable[str]: ...


AnyState = TypeVar("AnyState", bound=RunState)
AnyTeam = TypeVar("AnyTeam", bound=HasWorkers)


class StateReader(Generic[AnyState]):
    """Reads states of runs repeatedly. After the first time, it reads only the new entries of a run."""

    def __init__(self, kind: type[AnyState]) -> None:
        self._kind = kind
        self._known: dict[str, tuple[AnyState, int]] = {}
        """The states, keyed by run, each with the sequence number of the last applied entry."""
        self._unread: set[str] = set()

    def read(self, reader: StoreReader, run: str) -> AnyState:
        """Return the state of a run now."""
        state, seq = self._known.get(run) or (self._kind(), 0)
        for entry in reader.read_entries(run, seq, kinds=self._kind.KINDS):
            state.apply(entry)
            seq = entry.seq
        self._known[run] = state, seq
        self._unread.discard(run)
        return state

    def forget_unread(self) -> None:
        """Forget the states that were not read since this was called last."""
        for run in self._unread:
            del self._known[run]
        self._unread = set(self._known)


def read_team_states(
    run: str, read: Callable[[str], AnyTeam], *, includes: Callable[[str], bool | None]
) -> dict[str, AnyTeam]:
    """Return what `read` returns for a run and, level by level, for the runs of its workers, keyed by run.

    Workers for whose runs `includes` returns a false value are left out, together with their own workers.
    """
    states: dict[str, AnyTeam] = {}
    runs = [run]
    for one in runs:  # the loop itself extends this list
        if one not in states:
            states[one] = read(one)
            runs += filter(includes, states[one].worker_runs)
    return states
