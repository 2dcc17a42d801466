"""Follow what the agents of a run do: their turns and tools over time, their messages, and what stands out.

Everything that grows here has the number of its entry, so the activity up to an earlier entry is a part of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import msgspec
from msgspec import Struct, field

from ...core.edits import EDITS, Edits, Place
from ...values.event import (
    KINDS,
    ActionRefused,
    BallotCast,
    CallFailed,
    DecisionCommitted,
    DecisionProposed,
    DiscussionEnded,
    Entry,
    HandedOff,
    IterationFailed,
    MessageReceived,
    ModelReplied,
    OperationEnded,
    OperationStarted,
    PermissionAnswered,
    PermissionAsked,
    PlanCommitted,
    PlanStepBlocked,
    PlanStepCompleted,
    PlanStepFailed,
    PlanStepHandedOver,
    PlanStepStarted,
    PlanStepUnblocked,
    QuestionAnswered,
    QuestionAsked,
    ReasoningStreamed,
    Routed,
    RunEnded,
    RunPaused,
    RunResumed,
    TeamPlanned,
    TextStreamed,
    ToolAnswered,
    ToolCalled,
    TurnEnded,
    TurnResumed,
    TurnStarted,
    Voted,
    WorkCommitted,
    WorkEnded,
    WorkerSent,
)
from ...values.phase import Activity
from ..run_phase import WORK_EVENTS, OngoingWork
from . import RunState

Doing = Activity | Literal["retrying", "blocked"]
"""What an agent does: its activity, or that it waits to repeat a model call or cannot continue a step of a plan."""

Mark = Literal["plan", "handoff", "decision", "proposal", "ballot", "merge", "commit", "message", "worker", "error"]
"""What a marker on a lane stands for."""

VOTES = "/Votes"
MERGES = "/Merges"
"""The keys of the lanes for what belongs to no single agent. The slash keeps them apart from agents of these names."""

MOST_MESSAGES = 500
LONGEST_ARGUMENTS = 160
LONGEST_ARGUMENT_TEXT = 400

_ERRORS = frozenset({CallFailed, IterationFailed, PlanStepFailed, ActionRefused})

PERIOD_KINDS = tuple(
    sorted(KINDS[event] for event in (RunPaused, RunResumed, RunEnded, OperationStarted, *WORK_EVENTS))
)
"""The kinds of entries that are needed to know in which periods agents were active, except for retries."""


class Period(NamedTuple):
    """A time in which an agent did one thing in one of its operations."""

    agent: str
    activity: Activity
    start: float
    end: float


class Segment(Struct, frozen=True, array_like=True):
    """A period in which an agent did one thing, and the entry with which it began."""

    doing: Doing
    start: float
    end: float
    seq: int


class Marker(Struct, frozen=True, array_like=True):
    """A point on a lane. An arrow also has the key of the lane that it leads `to`."""

    kind: Mark
    at: float
    seq: int
    to: str = ""


class Lane(Struct):
    """What one agent did over time, in all of its operations together."""

    key: str
    segments: list[Segment] = []
    longest: float = 0.0
    """The length of the longest segment."""
    markers: list[Marker] = []

    @property
    def place(self) -> Place:
        """The place in the state of a run."""
        return ("activity", "lanes", self.key)


class OpenOperation(Struct):
    """What the agent of an operation that has not ended is doing, since when, and since which entry."""

    path: str
    agent: str
    since: float
    seq: int
    doing: Doing = "starting"
    ongoing: OngoingWork = field(default_factory=OngoingWork)
    is_retrying: bool = False

    @property
    def place(self) -> Place:
        """The place in the state of a run."""
        return ("activity", "open", self.path)


class ToolActivity(Struct):
    """A tool call of an operation. Until it ends, `end_seq` is None."""

    operation: str
    id: str
    seq: int
    at: float
    tool: str
    brief: str
    """The arguments on one short line."""
    end_seq: int | None = None
    end_at: float = 0.0
    is_error: bool = False

    @property
    def place(self) -> Place:
        """The place in the state of a run."""
        return ("activity", "operations", self.operation, "calls", str(self.seq))


class StartedWorker(Struct, frozen=True):
    """A worker that an operation started."""

    seq: int
    operation: str
    run: str
    branch: str


class OperationActivity(Struct):
    """The agent of an operation, and its tool calls by sequence number."""

    path: str
    agent: str
    calls: dict[int, ToolActivity] = {}

    @property
    def place(self) -> Place:
        """The place in the state of a run."""
        return ("activity", "operations", self.path)


class ShownMessage(Struct, frozen=True):
    """A message to an agent, or what the agent said in a turn."""

    seq: int
    at: float
    agent: str
    by: str
    text: str
    is_person: bool
    files: tuple[str, ...] = ()


class RunActivity(RunState):
    """What the agents of a run do, built by applying the entries of its timeline in order."""

    PLACE = ("activity",)

    at: float = 0.0
    operations: dict[str, OperationActivity] = field(default_factory=dict)
    open: dict[str, OpenOperation] = field(default_factory=dict)
    """The operations that have not ended, and the blocked steps of plans, which have a path of their own."""
    lanes: dict[str, Lane] = field(default_factory=dict)
    """The agents' lanes, keyed by agent, in the order in which the agents appeared, and `VOTES` and `MERGES`."""
    asked: dict[str, str] = field(default_factory=dict)
    """The operations whose agents have asked, keyed by the ids of their requests."""
    step_owners: dict[str, str] = field(default_factory=dict)
    permissions: dict[str, int] = field(default_factory=dict)
    """The sequence numbers of permission requests, keyed by the scopes of their actions."""
    workers: list[StartedWorker] = field(default_factory=list)
    messages: list[ShownMessage] = field(default_factory=list)
    notable: list[int] = field(default_factory=list)
    """The sequence numbers of all entries except streamed text."""
    marked: dict[Mark, int] = field(default_factory=dict)
    """The number of markers of each kind."""

    def apply(self, entry: Entry, edits: Edits = EDITS) -> None:
        """Apply the next entry."""
        if isinstance(entry.event, TextStreamed | ReasoningStreamed):
            if isinstance(entry.event, TextStreamed):
                self._end_retry(entry, edits)
        else:
            edits.add(self, "notable", entry.seq)
            self._apply_work(entry, edits)
            self._apply_plan_step(entry, edits)
            self._apply_message(entry, edits)
            self._apply_mark(entry, edits)
        edits.set(self, at=entry.at)

    def iter_periods(self, until: float) -> Iterator[Period]:
        """Yield what each agent did, for each of its operations, up to the time `until`."""
        for lane in self.lanes.values():
            for segment in lane.segments:
                if segment.doing != "blocked":
                    yield Period(lane.key, _as_activity(segment.doing), segment.start, segment.end)
        for operation in self.open.values():
            if operation.doing != "blocked":
                yield Period(operation.agent, _as_activity(operation.doing), operation.since, until)

    # What agents do

    def _apply_work(self, entry: Entry, edits: Edits) -> None:
        match entry.event:
            case OperationStarted(agent=agent):
                edits.put(self, "operations", entry.operation, OperationActivity(entry.operation, agent))
                self._open(entry.operation, agent, entry, edits)
            case OperationEnded():
                self._close(entry.operation, entry.at, edits)
            case RunEnded():
                self._close("", entry.at, edits)
            case RunPaused():
                self._stop_work(entry.at, entry.seq, edits)
            case RunResumed():
                # The time since the last entry of the process before does not count as work.
                self._stop_work(self.at, entry.seq, edits)
            case CallFailed(wait=wait) if (operation := self.open.get(entry.operation)) is not None:
                edits.set(operation, is_retrying=wait is not None)
                self._settle(operation, entry.at, entry.seq, edits)
            case ModelReplied():
                self._end_retry(entry, edits)
            case PermissionAnswered(id=id) | QuestionAnswered(id=id):
                operation = self.open.get(self.asked.get(id, ""))
                edits.drop(self, "asked", id)
                self._apply_ongoing(operation, entry, edits)
            case event if type(event) in WORK_EVENTS:
                self._note_call(entry, edits)
                self._apply_ongoing(self.open.get(entry.operation), entry, edits)

    def _note_call(self, entry: Entry, edits: Edits) -> None:
        """Note a tool call, a request or a worker of an operation."""
        known = self.operations.get(entry.operation)
        match entry.event:
            case PermissionAsked(id=id):
                edits.put(self, "permissions", entry.scope, entry.seq)
                edits.put(self, "asked", id, entry.operation)
            case QuestionAsked(id=id):
                edits.put(self, "asked", id, entry.operation)
            case ToolCalled(id=id, action=action) if known is not None:
                brief = _format_brief_arguments(action.arguments)
                call = ToolActivity(entry.operation, id, entry.seq, entry.at, action.tool, brief)
                edits.put(known, "calls", entry.seq, call)
            case ToolAnswered(id=id, is_error=is_error) if known is not None:
                if (found := _find_open_call(known, id)) is not None:
                    edits.set(found, end_seq=entry.seq, end_at=entry.at, is_error=is_error)
            case WorkerSent(run=run, branch=branch):
                edits.add(self, "workers", StartedWorker(entry.seq, entry.operation, run, branch))

    def _apply_ongoing(self, operation: OpenOperation | None, entry: Entry, edits: Edits) -> None:
        if operation is None:
            return
        operation.ongoing.apply(entry)
        edits.replace(operation, "ongoing")
        if isinstance(entry.event, TurnStarted | TurnResumed):
            edits.set(operation, is_retrying=False)
        self._settle(operation, entry.at, entry.seq, edits)

    def _end_retry(self, entry: Entry, edits: Edits) -> None:
        operation = self.open.get(entry.operation)
        if operation is not None and operation.is_retrying:
            edits.set(operation, is_retrying=False)
            self._settle(operation, entry.at, entry.seq, edits)

    def _open(self, path: str, agent: str, entry: Entry, edits: Edits) -> OpenOperation:
        self._lane(agent, edits)
        opened = OpenOperation(path, agent, entry.at, entry.seq)
        edits.put(self, "open", path, opened)
        return opened

    def _settle(self, operation: OpenOperation, at: float, seq: int, edits: Edits, *, is_blocked: bool = False) -> None:
        """Begin a new segment if what the agent does has changed."""
        doing: Doing = "blocked" if is_blocked else operation.ongoing.derive_activity()
        if doing == "thinking" and operation.is_retrying:
            doing = "retrying"
        if doing != operation.doing:
            self._add_segment(operation, at, edits)
            edits.set(operation, doing=doing, since=at, seq=seq)

    def _close(self, path: str, at: float, edits: Edits) -> None:
        """End the operations at and below a path, or all of them."""
        for key in [key for key in self.open if not path or key == path or key.startswith(f"{path}/")]:
            self._add_segment(self.open[key], at, edits)
            edits.drop(self, "open", key)

    def _stop_work(self, at: float, seq: int, edits: Edits) -> None:
        """End all turns and tool calls, because the run is paused or its process died. Requests stay open."""
        for operation in self.open.values():
            if operation.doing != "blocked":
                operation.ongoing.interrupt()
                edits.replace(operation, "ongoing")
                self._settle(operation, at, seq, edits)

    def _add_segment(self, operation: OpenOperation, end: float, edits: Edits) -> None:
        lane = self.lanes[operation.agent]
        edits.add(lane, "segments", Segment(operation.doing, operation.since, end, operation.seq))
        if end - operation.since > lane.longest:
            edits.set(lane, longest=end - operation.since)

    def _lane(self, key: str, edits: Edits) -> Lane:
        if key not in self.lanes:
            edits.put(self, "lanes", key, Lane(key))
        return self.lanes[key]

    # Steps of a plan

    def _apply_plan_step(self, entry: Entry, edits: Edits) -> None:
        match entry.event:
            case PlanStepStarted(step=step, owner=owner):
                edits.put(self, "step_owners", step, owner)
            case PlanStepHandedOver(step=step, receiver=receiver, refused=refused):
                self._close(f"/step/{step}", entry.at, edits)
                if not refused:
                    edits.put(self, "step_owners", step, receiver)
            case PlanStepBlocked(step=step):
                path = f"/step/{step}"
                if step in self.step_owners and path not in self.open:
                    opened = self._open(path, self.step_owners[step], entry, edits)
                    self._settle(opened, entry.at, entry.seq, edits, is_blocked=True)
            case PlanStepUnblocked(step=step) | PlanStepCompleted(step=step) | PlanStepFailed(step=step):
                self._close(f"/step/{step}", entry.at, edits)

    # Messages and markers

    def _apply_message(self, entry: Entry, edits: Edits) -> None:
        match entry.event:
            case TurnEnded(text=text) if text and (known := self.operations.get(entry.operation)) is not None:
                self._add_message(
                    ShownMessage(entry.seq, entry.at, known.agent, known.agent, text, is_person=False), edits
                )
            case MessageReceived(to=to, by=by, text=text, attachments=attachments):
                files = tuple(one.name for one in attachments)
                message = ShownMessage(entry.seq, entry.at, to, by or "you", text, is_person=True, files=files)
                self._add_message(message, edits)

    def _add_message(self, message: ShownMessage, edits: Edits) -> None:
        edits.add(self, "messages", message)
        if len(self.messages) > MOST_MESSAGES * 2:
            edits.set(self, messages=self.messages[-MOST_MESSAGES:])

    def _apply_mark(self, entry: Entry, edits: Edits) -> None:
        known = self.operations.get(entry.operation)
        own = known.agent if known is not None else next((key for key in self.lanes if not key.startswith("/")), "")
        match entry.event:
            case PlanCommitted():
                self._mark(own, "plan", entry, edits)
            case TeamPlanned(assignments=assignments) if assignments:
                self._mark(own, "plan", entry, edits)
            case (
                HandedOff(sender=sender, receiver=receiver)
                | PlanStepHandedOver(sender=sender, receiver=receiver, refused="")
            ):
                self._mark(sender, "handoff", entry, edits, to=receiver)
            case Routed(agent=agent):
                self._mark(known.agent if known is not None else agent, "handoff", entry, edits, to=agent)
            case DecisionProposed():
                self._mark(VOTES, "proposal", entry, edits)
            case BallotCast() | Voted():
                self._mark(VOTES, "ballot", entry, edits)
            case DecisionCommitted() | DiscussionEnded():
                self._mark(VOTES, "decision", entry, edits)
            case WorkCommitted():
                self._mark(MERGES, "commit", entry, edits)
            case WorkEnded(commit=commit) if commit:
                self._mark(MERGES, "merge", entry, edits)
            case MessageReceived(to=to) if to in self.lanes:
                self._mark(to, "message", entry, edits)
            case WorkerSent():
                self._mark(own, "worker", entry, edits)
            case OperationEnded(failure=failure) | TurnEnded(failure=failure) if failure is not None:
                self._mark(own, "error", entry, edits)
            case ToolAnswered(is_error=True):
                self._mark(own, "error", entry, edits)
            case event if type(event) in _ERRORS:
                self._mark(own, "error", entry, edits)

    def _mark(self, key: str, kind: Mark, entry: Entry, edits: Edits, *, to: str = "") -> None:
        if not key:
            return
        lane = self._lane(key, edits)
        if to:
            self._lane(to, edits)
        edits.add(lane, "markers", Marker(kind, entry.at, entry.seq, to))
        edits.put(self, "marked", kind, self.marked.get(kind, 0) + 1)


def _as_activity(doing: Doing) -> Activity:
    return "thinking" if doing == "retrying" or doing == "blocked" else doing


def _find_open_call(operation: OperationActivity, id: str) -> ToolActivity | None:
    return next((call for call in reversed(operation.calls.values()) if call.id == id and call.end_seq is None), None)


def _format_brief_arguments(arguments: dict[str, object]) -> str:
    """Return the arguments of a tool call on one short line: the value if there is one, otherwise names and values."""
    values = {
        name: value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for name, value in arguments.items()
    }
    line = (
        next(iter(values.values()))
        if len(values) == 1
        else "  ".join(f"{name}: {value}" for name, value in values.items())
    )
    flat = " ".join(line[:LONGEST_ARGUMENT_TEXT].split())
    return f"{flat[: LONGEST_ARGUMENTS - 1]}…" if len(flat) > LONGEST_ARGUMENTS else flat
