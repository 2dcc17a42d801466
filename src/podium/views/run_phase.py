"""Derive where a run stands: its phase from its last entry and its lease, and an agent's activity from its entries."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from ..values.event import (
    Entry,
    Event,
    Noticed,
    OperationEnded,
    PermissionAnswered,
    PermissionAsked,
    QuestionAnswered,
    QuestionAsked,
    RunEnded,
    RunPaused,
    RunStarted,
    ToolAnswered,
    ToolCalled,
    TurnEnded,
    TurnResumed,
    TurnStarted,
    WorkerReturned,
    WorkerSent,
)
from ..values.phase import Activity, Lease, Phase


def derive_phase(last: Event | None, lease: Lease, *, is_worker: bool = False) -> Phase:
    """Return the phase of a run whose last event is `last`. `is_worker` says whether a commander starts the run."""
    match last:
        case RunEnded(outcome="succeeded" | "failed" | "timed_out" | "cancelled" as outcome):
            return outcome
        case RunEnded():
            return "failed"
        case RunPaused(until=until):
            return "waiting" if until else "paused"
    if lease == "held":
        return "running"
    # Notices are recorded when a task is delegated, and by hosts that cannot work on the run.
    is_queued = is_worker and lease == "none" and isinstance(last, RunStarted | Noticed)
    return "queued" if is_queued else "resumable"


def is_startable(last: Event, *, now: float) -> bool:
    """Return whether a run that no process works on may continue without being asked to.

    This is so if it has neither ended nor paused, or if the limit that it was waiting for has reset.
    """
    match last:
        case RunPaused(until=until):
            return 0 < until <= now
    return not isinstance(last, RunEnded)


WORK_EVENTS = frozenset(
    {
        *(TurnStarted, TurnResumed, TurnEnded, OperationEnded, ToolCalled, ToolAnswered, WorkerSent, WorkerReturned),
        *(PermissionAsked, QuestionAsked, PermissionAnswered, QuestionAnswered),
    }
)
"""The events that change what agents are in the middle of."""


class RunningTool(Struct, frozen=True, array_like=True):
    """A tool that is running, and the scope of its call."""

    scope: str
    name: str


class OngoingWork(Struct):
    """What an agent, or a run as a whole, is in the middle of."""

    turns: list[str] = []
    """The scopes of the turns."""
    tools: dict[str, RunningTool] = {}
    """The tools that are running, in the order of their calls, keyed by the scopes and ids of the calls."""
    asked: dict[str, str] = {}
    """The scopes of the requests that nobody has answered, keyed by id."""
    workers: list[str] = []
    """The runs of the workers that have not returned."""
    has_turned: bool = False
    """Whether there was a turn since a process began to work on the run."""

    def apply(self, entry: Entry) -> bool:
        """Apply the next entry. Return whether it was about this work."""
        if type(entry.event) not in WORK_EVENTS:
            return False
        match entry.event:
            case TurnStarted() | TurnResumed():
                self.has_turned = True
                if entry.scope not in self.turns:
                    self.turns.append(entry.scope)
            case TurnEnded() | OperationEnded():
                self._close_below(entry.scope)
            case ToolCalled(id=id, action=action):
                self.tools[f"{entry.scope} {id}"] = RunningTool(entry.scope, action.tool)
            case ToolAnswered(id=id):
                self.tools.pop(f"{entry.scope} {id}", None)
            case PermissionAsked(id=id) | QuestionAsked(id=id):
                self.asked[id] = entry.scope
            case PermissionAnswered(id=id) | QuestionAnswered(id=id):
                self.asked.pop(id, None)
            case WorkerSent(run=run) if run not in self.workers:
                self.workers.append(run)
            case WorkerReturned(run=run) if run in self.workers:
                self.workers.remove(run)
        return True

    def interrupt(self) -> None:
        """Forget the turns and the tool calls, because no process works on the run. Requests and workers stay open."""
        self.has_turned = False
        self.turns.clear()
        self.tools.clear()

    def derive_activity(self, asked: Collection[str] | None = None) -> Activity:
        """Return the activity. `asked` contains the requests that count as open, by default all unanswered ones."""
        if self.asked if asked is None else asked:
            return "waiting"
        if self.tools:
            return "tool"
        if self.turns:
            return "thinking"
        if self.workers:
            return "workers"
        return "idle" if self.has_turned else "starting"

    def _close_below(self, place: str) -> None:
        self.turns = [turn for turn in self.turns if not _is_below(turn, place)]
        self.tools = {key: tool for key, tool in self.tools.items() if not _is_below(tool.scope, place)}
        self.asked = {id: scope for id, scope in self.asked.items() if not _is_below(scope, place)}


def _is_below(scope: str, place: str) -> bool:
    return scope == place or scope.startswith(f"{place}/")
