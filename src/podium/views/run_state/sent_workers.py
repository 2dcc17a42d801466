"""Follow the workers that a run started. Their work is on the timelines of their own runs."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field, structs

from ...core.edits import EDITS, Edits
from ...values.event import KINDS, Entry, WorkerReturned, WorkerSent
from . import RunState

_EVENTS = frozenset({WorkerSent, WorkerReturned})


class SentWorker(Struct, frozen=True, kw_only=True):
    """A worker that a run started.

    `operation` is the operation of whose agent it does the work, if it does that. `why` is the error that the run
    recorded for the worker, if any.
    """

    run: str
    branch: str
    task: str
    operation: str = ""
    why: str = ""


class SentWorkers(RunState):
    """The workers that a run started, built by applying the entries of its timeline in order."""

    PLACE = ("workers",)
    KINDS = tuple(sorted(KINDS[event] for event in _EVENTS))

    sent: dict[str, SentWorker] = field(default_factory=dict)
    """The workers, keyed by run, in the order in which they were started."""
    returned: list[str] = field(default_factory=list)
    """The runs of the workers that have ended."""

    @property
    def worker_runs(self) -> Iterable[str]:
        """The runs of the workers."""
        return self.sent

    def apply(self, entry: Entry, edits: Edits = EDITS) -> None:
        """Apply the next entry."""
        if type(entry.event) not in _EVENTS:
            return
        match entry.event:
            case WorkerSent(run=run, branch=branch, task=task) if run not in self.sent:
                operation = entry.operation if entry.scope == f"{entry.operation}/worker" else ""
                edits.put(self, "sent", run, SentWorker(run=run, branch=branch, task=task, operation=operation))
            case WorkerReturned(run=run, error=error):
                if run in self.sent:
                    edits.put(self, "sent", run, structs.replace(self.sent[run], why=error))
                if run not in self.returned:
                    edits.add(self, "returned", run)

    def list_open(self) -> list[SentWorker]:
        """Return the workers that have not returned."""
        return [one for run, one in self.sent.items() if run not in self.returned]
