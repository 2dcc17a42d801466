"""Events: the facts on a run's timeline, and the entry that records where each one belongs.

Events are named in the past tense and do not depend on where they are stored. Stored events must stay
readable for years: a new field has a default, a field never changes its meaning, and retired kinds of
events can still be read.
"""

from contextlib import suppress
from typing import get_args

import msgspec
from msgspec import Struct

from ... import __version__
from ..actor import Channel
from ..errors import StoreCorrupt
from .operation_events import (
    Advised,
    ChangesExpected,
    HandedOff,
    HookRan,
    MemoryChanged,
    OperationEnded,
    OperationEvent,
    OperationStarted,
    Routed,
    RouteRefused,
    StatusReported,
    StepEnded,
    Trigger,
)
from .plan_events import (
    ArtifactKind,
    ArtifactStored,
    BallotCast,
    BallotRefused,
    BlockerRaised,
    DecisionCommitted,
    DecisionEvent,
    DecisionProposed,
    FormedMember,
    HandoverAsked,
    PlanCommitted,
    PlanDrafted,
    PlanEvent,
    PlanRefused,
    PlanReviewed,
    PlanStepBlocked,
    PlanStepCompleted,
    PlanStepFailed,
    PlanStepHandedOver,
    PlanStepReopened,
    PlanStepReviewed,
    PlanStepStarted,
    PlanStepSubmitted,
    PlanStepUnblocked,
    SnapshotTaken,
    TeamFormed,
    VoteClosed,
    WorkEnded,
    WorkStateChanged,
)
from .run_events import (
    BudgetChanged,
    CheckoutSaved,
    MessageAcknowledged,
    MessageReceived,
    MessagesDelivered,
    MessageSent,
    Noticed,
    PauseAsked,
    RunEnded,
    RunEvent,
    RunPaused,
    RunResumed,
    RunStarted,
    StopAsked,
)
from .team_events import (
    AdjustmentProposed,
    Broadcast,
    CandidateChosen,
    CandidateResult,
    Checked,
    DiscussionEnded,
    Evaluated,
    IterationFailed,
    MemberChanged,
    PlannedAssignment,
    ReflectEnd,
    ReflectEnded,
    RoundEnded,
    TeamEvent,
    TeamPlanned,
    Voted,
    WorkRestored,
)
from .turn_events import (
    ActionBegan,
    ActionRefused,
    AgentSessionOpened,
    CallCut,
    CallFailed,
    ContextCompacted,
    Decision,
    LimitReached,
    ModelAskedAgain,
    ModelReplied,
    PermissionAnswered,
    PermissionAsked,
    PermissionEvent,
    QuestionAnswered,
    QuestionAsked,
    QuestionKind,
    ReasoningStreamed,
    SessionRevived,
    TextStreamed,
    TextSuperseded,
    ToolAnswered,
    ToolCalled,
    ToolUse,
    TurnEnded,
    TurnEvent,
    TurnResumed,
    TurnStarted,
)
from .worker_events import (
    AlsoCommitted,
    AlsoPlaced,
    PushFailed,
    WorkCommitted,
    WorkerEvent,
    WorkerPlaced,
    WorkerReturned,
    WorkerSent,
    WorkMoved,
    WorkPushed,
)

__all__ = [
    "KINDS",
    "SCHEMA",
    "ActionBegan",
    "ActionRefused",
    "AdjustmentProposed",
    "Advised",
    "AgentSessionOpened",
    "AlsoCommitted",
    "AlsoPlaced",
    "ArtifactKind",
    "ArtifactStored",
    "BallotCast",
    "BallotRefused",
    "BlockerRaised",
    "Broadcast",
    "BudgetChanged",
    "CallCut",
    "CallFailed",
    "CandidateChosen",
    "CandidateResult",
    "ChangesExpected",
    "Channel",
    "Checked",
    "CheckoutSaved",
    "ContextCompacted",
    "Decision",
    "DecisionCommitted",
    "DecisionProposed",
    "DiscussionEnded",
    "Entry",
    "Evaluated",
    "Event",
    "FormedMember",
    "HandedOff",
    "HandoverAsked",
    "HookRan",
    "IterationFailed",
    "LimitReached",
    "MemberChanged",
    "MemoryChanged",
    "MessageAcknowledged",
    "MessageReceived",
    "MessageSent",
    "MessagesDelivered",
    "ModelAskedAgain",
    "ModelReplied",
    "Noticed",
    "OperationEnded",
    "OperationStarted",
    "PauseAsked",
    "PermissionAnswered",
    "PermissionAsked",
    "PlanCommitted",
    "PlanDrafted",
    "PlanRefused",
    "PlanReviewed",
    "PlanStepBlocked",
    "PlanStepCompleted",
    "PlanStepFailed",
    "PlanStepHandedOver",
    "PlanStepReopened",
    "PlanStepReviewed",
    "PlanStepStarted",
    "PlanStepSubmitted",
    "PlanStepUnblocked",
    "PlannedAssignment",
    "PushFailed",
    "QuestionAnswered",
    "QuestionAsked",
    "QuestionKind",
    "ReasoningStreamed",
    "ReflectEnd",
    "ReflectEnded",
    "RoundEnded",
    "RouteRefused",
    "Routed",
    "RunEnded",
    "RunPaused",
    "RunResumed",
    "RunStarted",
    "SessionRevived",
    "SnapshotTaken",
    "StatusReported",
    "StepEnded",
    "StopAsked",
    "TeamFormed",
    "TeamPlanned",
    "TextStreamed",
    "TextSuperseded",
    "ToolAnswered",
    "ToolCalled",
    "ToolUse",
    "Trigger",
    "TurnEnded",
    "TurnResumed",
    "TurnStarted",
    "VoteClosed",
    "Voted",
    "WorkCommitted",
    "WorkEnded",
    "WorkMoved",
    "WorkPushed",
    "WorkRestored",
    "WorkStateChanged",
    "WorkerPlaced",
    "WorkerReturned",
    "WorkerSent",
    "decode_entry",
    "encode_entry",
    "event_kind",
]

SCHEMA = 1


Event = (
    RunEvent
    | PermissionEvent
    | HookRan
    | OperationEvent
    | TurnEvent
    | TeamEvent
    | WorkerEvent
    | PlanEvent
    | DecisionEvent
)


class Entry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event and its position on a run's timeline.

    `operation` is the path of the operation that the event belongs to. `scope` is the exact path of the event, which is
    the operation's path or a path below it. An entry with a `key` is the outcome of a step; each key is used at most
    once.
    """

    run: str
    seq: int
    at: float
    scope: str
    event: Event
    operation: str = ""
    key: str = ""
    digest: str = ""
    schema: int = SCHEMA

    @property
    def started(self) -> RunStarted:
        """The event that started the run. Raise StoreCorrupt if this entry is not a run's first one."""
        if isinstance(self.event, RunStarted):
            return self.event
        raise StoreCorrupt(
            f"entry {self.seq} of run {self.run} should be the start of the run, but is {event_kind(self.event)}; "
            f"run podium verify {self.run} to see whether it is damaged"
        )


encode_entry = msgspec.json.Encoder().encode
"""Encodes an entry as one line of JSON, which is stored, hashed and sent."""
_decoder = msgspec.json.Decoder(Entry)


def decode_entry(line: bytes, *, run: str = "") -> Entry:
    """Decode an entry from a line of JSON. Raise StoreCorrupt if it is invalid. `run` is used in the message."""
    try:
        return _decoder.decode(line)
    except msgspec.MsgspecError as error:
        raise StoreCorrupt(_describe_unreadable_entry(line, error, run)) from error


class _EntryPosition(Struct):
    run: str
    seq: int


def _describe_unreadable_entry(line: bytes, error: msgspec.MsgspecError, run: str) -> str:
    """Describe an entry that is damaged or that only a newer release can read."""
    newer = f"was written by a newer version of Podium than this one ({__version__})"
    which = f"an entry in run {run}" if run else "an entry in the store"
    with suppress(msgspec.MsgspecError):
        position = msgspec.json.decode(line, type=_EntryPosition)
        run, which = position.run, f"entry {position.seq} of run {position.run}"
    advice = f"; run podium verify {run} to see whether it is damaged; if it is not, update Podium" if run else ""
    return f"{which} cannot be read ({error}): it is damaged, or {newer}{advice}"


def event_kind(event: Event) -> str:
    """Return the event's kind, the name used in JSON and in the documentation."""
    return KINDS[type(event)]


KINDS: dict[type, str] = {event: str(event.__struct_config__.tag) for event in get_args(Event)}
"""The kind of each event class."""
