"""Events: the facts on a run's timeline, and the entry that gives each its place there.

An event is named in the past tense and knows nothing of where it is stored. What has been
written is read for years: a field is added with a default and never changes its meaning, and a
kind is retired but still read.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, get_args

import msgspec
from msgspec import Struct, structs

from .action import Action
from .agent import Agent, Budget
from .attachment import Attachment
from .errors import Failure, StoreCorrupt
from .request import Outcome, Part, Request
from .usage import NO_USAGE, Usage
from .worker_task import WorkerTask

SCHEMA = 1

Decision = Literal["once", "run", "always", "deny", "deny_and_pause", "abort"]
"""How a request for permission may be answered; all but the first three refuse."""

Trigger = Literal["request", "handoff", "route", "advice", "member", "tool", "retry"]


class _Event(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """`survives_power_loss` marks the kinds that are on the disk itself before anything follows from them."""

    survives_power_loss: ClassVar[bool] = False


# The run


class RunStarted(_Event, frozen=True, kw_only=True, tag="run_started"):
    """A request was given to an agent; the agents and settings are those that hold for the whole run."""

    agent: str
    request: Request
    agents: tuple[Agent, ...] = ()
    settings: dict[str, Any] = {}
    repo: str = ""
    version: str = ""
    errand: WorkerTask | None = None
    """What a worker was sent to do, where the run is one's."""
    after: str = ""
    """The run whose conversation this one goes on with."""


class RunResumed(_Event, frozen=True, kw_only=True, tag="run_resumed"):
    """Another process went on with the run where the last one left it."""

    host: str
    pid: int


class RunPaused(_Event, frozen=True, kw_only=True, tag="run_paused"):
    """No further step begins until somebody resumes the run."""


class RunEnded(_Event, frozen=True, kw_only=True, tag="run_ended"):
    """The run is over and will not change again; the answer stands at its first operation's end."""

    outcome: Outcome
    failure: Failure | None = None
    parts: tuple[Part, ...] = ()


# The person


class StopAsked(_Event, frozen=True, kw_only=True, tag="stop_asked"):
    """Somebody wants the run to end now, with what there is."""

    survives_power_loss: ClassVar[bool] = True

    by: str = ""


class PauseAsked(_Event, frozen=True, kw_only=True, tag="pause_asked"):
    """Somebody wants the run to begin nothing more for now."""

    survives_power_loss: ClassVar[bool] = True

    by: str = ""


class BudgetChanged(_Event, frozen=True, kw_only=True, tag="budget_changed"):
    """Somebody gave the run other limits; they hold from here on, and those that `budget` leaves out as before."""

    survives_power_loss: ClassVar[bool] = True

    budget: Budget
    by: str = ""


class MessageReceived(_Event, frozen=True, kw_only=True, tag="message_received"):
    """The person said something to an agent of the run; it reaches the agent at its next turn."""

    survives_power_loss: ClassVar[bool] = True

    id: str
    to: str
    text: str
    by: str = ""
    attachments: tuple[Attachment, ...] = ()


class MessagesDelivered(_Event, frozen=True, kw_only=True, tag="messages_delivered"):
    """These messages went into the turn that begins here, and into no other."""

    ids: tuple[str, ...]
    text: str = ""


# What a person is asked


class PermissionAsked(_Event, frozen=True, kw_only=True, tag="permission_asked"):
    """An agent wants to do something that a person decides on; nothing is done before there is an answer.

    `shown` is what the action would do, such as a diff, and `reason` the rule, or the lack of one, that asks.
    `always` is the rule that would allow it and its like for good; empty where that is not safe to offer.
    `denied` tells of earlier refusals of the same.
    """

    survives_power_loss: ClassVar[bool] = True

    id: str
    action: Action
    reason: str
    shown: str = ""
    always: str = ""
    denied: tuple[str, ...] = ()


class PermissionAnswered(_Event, frozen=True, kw_only=True, tag="permission_answered"):
    """The request of this id was decided, once and for all.

    `at` is when the person answered, and `rule` what was allowed for good with the answer.
    """

    survives_power_loss: ClassVar[bool] = True

    id: str
    decision: Decision
    by: str = ""
    comment: str = ""
    rule: str = ""
    at: float = 0.0

    @property
    def is_allowed(self) -> bool:
        return self.decision in ("once", "run", "always")


class QuestionAsked(_Event, frozen=True, kw_only=True, tag="question_asked"):
    """An agent asked the person something."""

    survives_power_loss: ClassVar[bool] = True

    id: str
    text: str
    choices: tuple[str, ...] = ()


class QuestionAnswered(_Event, frozen=True, kw_only=True, tag="question_answered"):
    """The question of this id has its answer."""

    survives_power_loss: ClassVar[bool] = True

    id: str
    text: str
    by: str = ""


# What agents do


class ActionBegan(_Event, frozen=True, kw_only=True, tag="action_began"):
    """An action was allowed and is carried out from here on; `allowed_by` is who or which rule."""

    survives_power_loss: ClassVar[bool] = True

    action: Action
    allowed_by: str
    is_repeatable: bool = False
    """Whether it may simply be done again, so that nothing hangs on this surviving a loss of power."""


class ActionRefused(_Event, frozen=True, kw_only=True, tag="action_refused"):
    """An action was not carried out; `reason` says who or which rule stood against it."""

    action: Action
    reason: str


class StatusReported(_Event, frozen=True, kw_only=True, tag="status_reported"):
    """An agent said where it stands."""

    text: str


# Operations


class OperationStarted(_Event, frozen=True, kw_only=True, tag="operation_started"):
    """An agent began its part of the run."""

    agent: str
    trigger: Trigger
    request: Request


class OperationEnded(_Event, frozen=True, kw_only=True, tag="operation_ended"):
    """An agent's part is over. Whatever it had started and not finished ended with it."""

    outcome: Outcome
    text: str = ""
    data: Any = None
    parts: tuple[Part, ...] = ()
    failure: Failure | None = None


# Turns and model calls


class ToolUse(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool call as the model made it."""

    id: str
    name: str
    arguments: dict[str, Any] = {}
    unreadable: str = ""
    """The arguments as received, where they were not a JSON object."""


class TurnStarted(_Event, frozen=True, kw_only=True, tag="turn_started"):
    """A session was given a prompt."""

    agent: str
    engine: str
    prompt: str


class TurnResumed(_Event, frozen=True, kw_only=True, tag="turn_resumed"):
    """The turn was under way when its process died, and goes on; what it had streamed is superseded."""


class TurnEnded(_Event, frozen=True, kw_only=True, tag="turn_ended"):
    """The session came back with a reply, or with the reason why there is none."""

    outcome: Outcome
    text: str = ""
    calls: tuple[ToolUse, ...] = ()
    failure: Failure | None = None


class SessionRevived(_Event, frozen=True, kw_only=True, tag="session_revived"):
    """A fresh session took the place of one that had nothing to say; it got the whole prompt again."""

    agent: str
    reason: str


class TextStreamed(_Event, frozen=True, kw_only=True, tag="text_streamed"):
    """A piece of a reply, as it came."""

    text: str


class ReasoningStreamed(_Event, frozen=True, kw_only=True, tag="reasoning_streamed"):
    """A piece of the thinking before a reply, as it came."""

    text: str


class TextSuperseded(_Event, frozen=True, kw_only=True, tag="text_superseded"):
    """The model is asked again; what this call had streamed no longer counts."""


class ModelReplied(_Event, frozen=True, kw_only=True, tag="model_replied"):
    """A model call came to its end."""

    model: str
    text: str = ""
    reasoning: str = ""
    calls: tuple[ToolUse, ...] = ()
    stop: str = ""
    sealed: str = ""
    """What the provider wants back unchanged with this reply, such as signed thinking; nobody else reads it."""
    usage: Usage = Usage()


class CallFailed(_Event, frozen=True, kw_only=True, tag="call_failed"):
    """A model call failed; `wait` is how long the next attempt was put off, None when this model is not tried again."""

    model: str
    message: str
    wait: float | None = None
    is_too_long: bool = False
    usage: Usage = Usage()


class ContextCompacted(_Event, frozen=True, kw_only=True, tag="context_compacted"):
    """A conversation came near the end of what its model can read: a summary took the place of its first messages."""

    summary: str
    replaced: int
    tries: int = 0
    """How many tries of the call had been made before, which the model said were too long."""


class CallCut(_Event, frozen=True, kw_only=True, tag="call_cut"):
    """A model call was cancelled; what it had said and cost until then, as far as is known."""

    model: str
    text: str = ""
    usage: Usage = Usage()


class ToolCalled(_Event, frozen=True, kw_only=True, tag="tool_called"):
    """A tool call began."""

    id: str
    action: Action


class ToolAnswered(_Event, frozen=True, kw_only=True, tag="tool_answered"):
    """A tool call is over."""

    id: str
    text: str
    is_error: bool = False
    is_timed_out: bool = False


# Patterns


class Advised(_Event, frozen=True, kw_only=True, tag="advised"):
    """All advisors were heard or given up."""

    heard: tuple[str, ...] = ()
    unavailable: tuple[Part, ...] = ()


class RouteRefused(_Event, frozen=True, kw_only=True, tag="route_refused"):
    """A router named somebody who is none of its destinations, or nobody."""

    chosen: str
    destinations: tuple[str, ...]


class Routed(_Event, frozen=True, kw_only=True, tag="routed"):
    """The request goes to this agent."""

    agent: str
    reason: str = ""
    is_fallback: bool = False


class HandedOff(_Event, frozen=True, kw_only=True, tag="handed_off"):
    """One agent's answer went on to another, which answers in its place."""

    sender: str
    receiver: str


# Teams


class PlannedAssignment(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of the work for one worker."""

    worker: str
    task: str


class TeamPlanned(_Event, frozen=True, kw_only=True, tag="team_planned"):
    """A lead shared out the work; `skipped` says which assignments were none, and why."""

    assignments: tuple[PlannedAssignment, ...]
    skipped: tuple[str, ...] = ()
    iteration: int = 1
    flagged: tuple[str, ...] = ()
    """What is odd about it, such as the same task for two workers."""


class Evaluated(_Event, frozen=True, kw_only=True, tag="evaluated"):
    """A judge said how good the work of an iteration is."""

    iteration: int
    score: float
    rationale: str = ""
    by: str = ""
    trend: Literal["improving", "stable", "degrading"] = "stable"
    is_complete: bool = False
    held_back: str = ""
    """Why a claim to be complete does not hold."""
    model: str = ""
    """What the judge thinks with."""
    pauses: int = 0
    """How often the run had been paused by then: repetition is looked for since the last time."""


class Checked(_Event, frozen=True, kw_only=True, tag="checked"):
    """The commands that a team is measured by were run on a clean checkout of its work."""

    commands: tuple[str, ...]
    passed: bool
    output: str = ""


class AdjustmentProposed(_Event, frozen=True, kw_only=True, tag="adjustment_proposed"):
    """Something about a team that might be changed before its next iteration.

    Where it is about what a member thinks with, `member` and `model` say what to change.
    """

    iteration: int
    text: str
    member: str = ""
    model: str = ""
    is_applied: bool = False


class MemberChanged(_Event, frozen=True, kw_only=True, tag="member_changed"):
    """An agent of a run gets another model or prompt from its next part on; what is empty stays."""

    member: str
    model: str = ""
    prompt: str = ""
    by: str = ""

    def with_earlier(self, before: MemberChanged | None) -> MemberChanged:
        """This change on top of an earlier one of the same agent."""
        if before is None:
            return self
        return structs.replace(self, model=self.model or before.model, prompt=self.prompt or before.prompt)


class IterationFailed(_Event, frozen=True, kw_only=True, tag="iteration_failed"):
    """An iteration came to nothing, and is tried again or not."""

    iteration: int
    message: str


ReflectEnd = Literal["goal_met", "max_iterations", "stalled", "error_budget", "budget_exhausted", "cancelled", "paused"]


class ReflectEnded(_Event, frozen=True, kw_only=True, tag="reflect_ended"):
    """A loop of plan, work and evaluation is over."""

    end: ReflectEnd
    iterations: int
    score: float = 0.0
    most: int = 0
    """How many iterations it might have had."""

    @property
    def is_success(self) -> bool:
        """Whether the loop came to what was wanted; no other end is a success."""
        return self.end == "goal_met"

    @property
    def is_goal_met(self) -> bool:
        return self.is_success

    @property
    def is_stalled(self) -> bool:
        return self.end == "stalled"

    @property
    def is_cancelled(self) -> bool:
        """Whether it ended without success; one that is paused has not ended."""
        return self.end not in ("goal_met", "paused")


class Broadcast(_Event, frozen=True, kw_only=True, tag="broadcast"):
    """A member of a discussion said something to all of them."""

    author: str
    round: int
    text: str


class Voted(_Event, frozen=True, kw_only=True, tag="voted"):
    """A member of a discussion said whether it is ready to conclude."""

    author: str
    round: int
    ready: bool
    reason: str = ""


class RoundEnded(_Event, frozen=True, kw_only=True, tag="round_ended"):
    """Every member of a discussion had its say, or its time was over."""

    round: int
    missing: tuple[str, ...] = ()


class DiscussionEnded(_Event, frozen=True, kw_only=True, tag="discussion_ended"):
    """A discussion is over: by consensus, after so many rounds, or because the coordinator said so."""

    by: Literal["consensus", "max_rounds", "coordinator", "stalled", "nobody_left", "budget", "stopped"]
    rounds: int
    broadcasts: int = 0
    injected_tokens: int = 0
    """How much of what others said went into prompts, about."""


class WorkerPlaced(_Event, frozen=True, kw_only=True, tag="worker_placed"):
    """A worker has its checkout; `base` is the commit that its branch began at."""

    path: str
    branch: str
    base: str


class WorkCommitted(_Event, frozen=True, kw_only=True, tag="work_committed"):
    """What a worker changed is on its branch. `commits` are all since its base, the newest first."""

    branch: str
    commit: str
    commits: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    added: int = 0
    removed: int = 0


class WorkerSent(_Event, frozen=True, kw_only=True, tag="worker_sent"):
    """A part of this run is done by a worker, whose own run has this id.

    `budget` is what it may use of this run's, and is kept for it until it returns. With `is_shared` it works in the
    checkout of others of its team.
    """

    run: str
    branch: str = ""
    task: str = ""
    budget: Budget | None = None
    is_shared: bool = False


class WorkerReturned(_Event, frozen=True, kw_only=True, tag="worker_returned"):
    """A worker that was sent is through: how it ended, what it said, what it used and which files it changed."""

    run: str
    outcome: Outcome
    text: str = ""
    error: str = ""
    usage: Usage = NO_USAGE
    files: tuple[str, ...] = ()


class Noticed(_Event, frozen=True, kw_only=True, tag="noticed"):
    """Something the person should know and need not act on."""

    text: str


Event = (
    RunStarted
    | RunResumed
    | RunPaused
    | RunEnded
    | StopAsked
    | PauseAsked
    | BudgetChanged
    | MessageReceived
    | MessagesDelivered
    | PermissionAsked
    | PermissionAnswered
    | QuestionAsked
    | QuestionAnswered
    | ActionBegan
    | ActionRefused
    | StatusReported
    | OperationStarted
    | OperationEnded
    | TurnStarted
    | TurnResumed
    | TurnEnded
    | SessionRevived
    | TextStreamed
    | ReasoningStreamed
    | TextSuperseded
    | ModelReplied
    | CallFailed
    | ContextCompacted
    | CallCut
    | ToolCalled
    | ToolAnswered
    | Advised
    | RouteRefused
    | Routed
    | HandedOff
    | TeamPlanned
    | Evaluated
    | Checked
    | AdjustmentProposed
    | MemberChanged
    | IterationFailed
    | ReflectEnded
    | Broadcast
    | Voted
    | RoundEnded
    | DiscussionEnded
    | WorkerPlaced
    | WorkCommitted
    | WorkerSent
    | WorkerReturned
    | Noticed
)


class Entry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event where it lies on a run's timeline.

    `operation` is the path of the operation it belongs to and `scope` the exact place below it.
    An entry with a `key` is the outcome of a step: the key never gets another one.
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


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Entry)


def encode_entry(entry: Entry) -> bytes:
    """The entry as one line of JSON: what is stored, hashed and sent."""
    return _encoder.encode(entry)


def decode_entry(line: bytes) -> Entry:
    """The entry that a line holds."""
    try:
        return _decoder.decode(line)
    except msgspec.MsgspecError as error:
        raise StoreCorrupt(
            f"an entry of the store cannot be read ({error}): it is damaged, or a newer Podium wrote it"
        ) from error


def event_kind(event: Event) -> str:
    """The event's name on the wire and in the documentation."""
    return KINDS[type(event)]


KINDS: dict[type, str] = {event: str(event.__struct_config__.tag) for event in get_args(Event)}
"""Every kind of event by its class."""
