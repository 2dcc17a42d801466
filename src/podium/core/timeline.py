"""The journal: what happened, in order, and what must not happen twice.

A run's code is ordinary async Python, and resuming a run is running it again. Every effect is a
step with a key; a step whose outcome is on the timeline is not carried out again but answered
from there. Keys are paths in the run's tree (`lead/advice:legal#1/turn#1/call#1`), counted inside
their parent, so that parallel branches never share a counter.

Writing is queued in order and commits as fast as the store can. Nothing acts on what is not yet
written: `settled` is awaited before every effect and before anything is told to the outside. So
a crash loses at most a tail that nothing followed from.

Who may write, and how lines are kept, belongs to the store; what the events mean, to others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import cache, cached_property
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ..values.agent import Budget
from ..values.errors import JournalMismatch
from ..values.event import (
    KINDS,
    ActionBegan,
    CallCut,
    CallFailed,
    Entry,
    Event,
    MemberChanged,
    MessageReceived,
    MessagesDelivered,
    ModelReplied,
    PauseAsked,
    PermissionAnswered,
    PermissionAsked,
    QuestionAnswered,
    QuestionAsked,
    RunResumed,
    StopAsked,
    WorkerReturned,
    WorkerSent,
    decode_entry,
    encode_entry,
    event_kind,
)
from ..values.usage import NO_USAGE, Usage, sum_usage
from .journal import GENESIS, JournalRow, Lease, chain_hash
from .redaction import NO_REDACTION, Redaction

if TYPE_CHECKING:
    from asyncio import Event as Flag

    from .clock import RunTimeouts

E = TypeVar("E", bound=Event)


class UnreturnedWorker(NamedTuple):
    """A worker that has not returned: who sent it, and what it may use."""

    operation: str
    budget: Budget | None


class Denial(NamedTuple):
    """Somebody's refusal of what an agent wanted."""

    agent: str
    by: str
    comment: str
    at: float


class Timeline:
    """A run's journal in the hands of the one process that owns the run."""

    def __init__(
        self,
        run: str,
        lease: Lease,
        *,
        redaction: Redaction = NO_REDACTION,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.run = run
        self.redaction = redaction
        self.seq = 0
        self.earlier_seconds = 0.0
        """The seconds that earlier owners worked on it."""
        self.usage: dict[str, Usage] = {}
        self.messages: dict[str, MessageReceived] = {}
        self.answers: dict[str, PermissionAnswered | QuestionAnswered] = {}
        """What the person has answered, by the id of the request or question."""
        self.asked: dict[str, PermissionAsked | QuestionAsked] = {}
        """What the person has been asked, by its id."""
        self.approvals: dict[str, str] = {}
        """The actions that may be repeated in this run, by what they have in common, and who said so."""
        self.granted_rules: tuple[str, ...] = ()
        """The rules that were allowed for good in this run."""
        self.denials: dict[str, list[Denial]] = {}
        """What was refused, by the action's wish."""
        self.changed_files: dict[str, set[str]] = {}
        """The files that each operation has changed."""
        self.unreturned_workers: dict[str, UnreturnedWorker] = {}
        """The workers that have not returned, by their runs."""
        self.member_changes: dict[str, MemberChanged] = {}
        """What was changed about agents since the run began, by their names."""
        self.pauses = 0
        """How often the run was paused and resumed."""
        self.stop_asked = False
        self.is_pausing = False
        self.on_quiet: Callable[[], object] = lambda: None
        self.read_attachment: Callable[[str], bytes | None] = lambda digest: None
        """What came with messages to this run, by its digest."""
        self._lease = lease
        self._clock = clock
        self._hash = GENESIS
        self._outcomes: dict[str, bytes] = {}
        self._answer_flags: dict[str, Flag] = {}
        self.running_effects = 0
        """How many effects on the outside are under way."""

    def load(self, rows: Iterable[JournalRow]) -> None:
        """Take in what earlier owners wrote. Lines are decoded when they are asked for, not before."""
        began: float | None = None
        last: JournalRow | None = None
        for row in rows:
            if began is None or row.kind == KINDS[RunResumed]:
                self.earlier_seconds += 0.0 if began is None or last is None else decode_entry(last.line).at - began
                began = decode_entry(row.line).at
            last = row
            if row.key:
                self._outcomes[row.key] = row.line
            if row.kind in _INDEXED_KINDS:
                entry = decode_entry(row.line)
                self._index_event(entry.operation, entry.event)
            self.seq, self._hash = row.seq, row.hash
        if began is not None and last is not None:
            self.earlier_seconds += decode_entry(last.line).at - began

    def has_outcome(self, key: str) -> bool:
        """Whether a step has its outcome."""
        return key in self._outcomes

    def find_events_below(self, path: str, *kinds: type[E], operation: str = "") -> list[E]:
        """The outcomes and facts of these kinds that are recorded below a place, in order.

        With `operation` only those that belong to it, and not to another one further down.
        """
        prefix = f"{path}/"
        names = tuple(f'"type":"{KINDS[one]}"'.encode() for one in kinds)
        entries = (
            decode_entry(line)
            for key, line in self._outcomes.items()
            if key.startswith(prefix) and any(name in line for name in names)
        )
        found = [entry.event for entry in entries if not operation or entry.operation == operation]
        return [event for event in found if isinstance(event, kinds)]

    def outcome_time(self, key: str) -> float | None:
        """When the outcome of a step was recorded; None where it has none."""
        line = self._outcomes.get(key)
        return None if line is None else decode_entry(line).at

    def find_outcome(self, key: str, wanted: str) -> Event | None:
        """The recorded outcome of a step; None when it has none yet."""
        line = self._outcomes.get(key)
        if line is None:
            return None
        entry = decode_entry(line)
        if entry.digest != wanted:
            raise JournalMismatch(
                f"run {self.run} recorded the step {key} for the input {entry.digest}, but it is now asked for "
                f"the input {wanted}; the run cannot go on with other inputs than it began with"
            )
        return entry.event

    def append(
        self, event: Event, *, scope: str, operation: str = "", key: str = "", digest: str = "", mail: int | None = None
    ) -> Entry:
        """Put an event at the end of the timeline."""
        entry = Entry(
            run=self.run,
            seq=self.seq + 1,
            at=self._clock(),
            scope=scope,
            event=event,
            operation=operation,
            key=key,
            digest=digest,
        )
        line = encode_entry(entry)
        if (clean := self.redaction.redact_line(line)) != line:
            # What goes on is what a resumed run will find.
            line, entry = clean, decode_entry(clean)
        row = JournalRow(
            self.run, entry.seq, self._lease.epoch, event_kind(event), key, line, chain_hash(self._hash, line)
        )
        is_urgent = event.survives_power_loss and not (isinstance(event, ActionBegan) and event.is_repeatable)
        self._lease.append(row, survives_power_loss=is_urgent, mail=mail)
        self.seq, self._hash = row.seq, row.hash
        if key:
            self._outcomes[key] = line
        if row.kind in _INDEXED_KINDS:
            self._index_event(operation, entry.event)
        return entry

    @property
    def effect(self) -> Effect:
        """The block around something that acts on the outside."""
        return Effect(self)

    @cached_property
    def timeouts(self) -> RunTimeouts:
        """The time limits of the run's work."""
        return _load_timeouts_class()()

    async def wait_written(self, *, is_alone: bool = True) -> None:
        """Return when all that was appended is written."""
        await self._lease.wait_written(is_alone=is_alone)

    async def wait_while_paused(self) -> None:
        """Wait for ever while the run is being paused: nobody is late while it comes to rest."""
        if self.is_pausing:
            from anyio import sleep_forever  # here, because reading a store needs no event loop

            await sleep_forever()

    def pause(self) -> None:
        """Let no further effect begin, and say so when the last one under way is over."""
        self.is_pausing = True
        if self.running_effects == 0:
            self.on_quiet()

    def list_undelivered(self, agent: str) -> list[MessageReceived]:
        """The person's messages to this agent that have not gone into a turn yet."""
        return [message for message in self.messages.values() if message.to == agent]

    async def wait_answer(self, id: str) -> PermissionAnswered | QuestionAnswered:
        """What the person answers to the request or question of this id; waits for it."""
        while id not in self.answers:
            from asyncio import Event as Flag  # here, because reading a store needs no event loop

            await self._answer_flags.setdefault(id, Flag()).wait()
        return self.answers[id]

    def usage_below(self, below: str = "") -> Usage:
        """What the operations at or below a path have used so far."""
        prefix = f"{below}/" if below else ""
        return sum_usage(used for path, used in self.usage.items() if f"{path}/".startswith(prefix))

    def worker_budgets_below(self, below: str = "") -> list[Budget]:
        """What workers may use that operations at or below a path have sent and that have not returned."""
        prefix = f"{below}/" if below else ""
        out = (one for one in self.unreturned_workers.values() if f"{one.operation}/".startswith(prefix))
        return [one.budget for one in out if one.budget is not None]

    def files_changed_below(self, path: str) -> set[str]:
        """The files that the operations at or below a path have changed so far."""
        prefix = f"{path}/" if path else ""
        found = [files for operation, files in self.changed_files.items() if f"{operation}/".startswith(prefix)]
        return set().union(*found)

    def _index_event(self, operation: str, event: Event) -> None:
        match event:
            case ModelReplied() | CallFailed() | CallCut() | WorkerReturned():
                self.usage[operation] = self.usage.get(operation, NO_USAGE) + event.usage
                if isinstance(event, WorkerReturned):
                    self.unreturned_workers.pop(event.run, None)
                    self.changed_files.setdefault(operation, set()).update(event.files)
            case WorkerSent():
                self.unreturned_workers[event.run] = UnreturnedWorker(operation, event.budget)
            case MessageReceived():
                self.messages[event.id] = event
            case MessagesDelivered():
                for id in event.ids:
                    self.messages.pop(id, None)
            case PermissionAsked() | QuestionAsked():
                self.asked[event.id] = event
            case PermissionAnswered() | QuestionAnswered():
                self._index_answer(event)
            case ActionBegan():
                self.changed_files.setdefault(operation, set()).update(event.action.outputs)
            case StopAsked():
                self.stop_asked = True
            case PauseAsked():
                self.is_pausing = True
            case RunResumed():
                self.pauses += self.is_pausing
                self.is_pausing = False
            case MemberChanged():
                self.member_changes[event.member] = event.with_earlier(self.member_changes.get(event.member))

    def _index_answer(self, event: PermissionAnswered | QuestionAnswered) -> None:
        """Take in an answer. Of two to the same request the first one counts."""
        if self.answers.setdefault(event.id, event) is not event:
            return
        asked = self.asked.get(event.id)
        if isinstance(event, PermissionAnswered) and isinstance(asked, PermissionAsked):
            action = asked.action
            if not event.is_allowed:
                denial = Denial(action.agent, event.by or "podium", event.comment, self._clock())
                self.denials.setdefault(action.effect_hash, []).append(denial)
            # What came after its time counts for nothing: the gate puts the request anew.
            elif event.decision != "once" and not 0 < action.expires_at < event.at:
                self.approvals[action.repeat_key] = event.by or "a person"
                if event.decision == "always" and event.rule == asked.always != "":
                    self.granted_rules += (event.rule,)
        if event.id in self._answer_flags:
            self._answer_flags.pop(event.id).set()


@cache
def _load_timeouts_class() -> type[RunTimeouts]:
    from .clock import RunTimeouts  # here, because reading a store needs no event loop

    return RunTimeouts


_INDEXED_KINDS = frozenset(
    KINDS[remembered]
    for remembered in (
        ModelReplied,
        CallFailed,
        CallCut,
        PermissionAsked,
        PermissionAnswered,
        QuestionAsked,
        QuestionAnswered,
        ActionBegan,
        MessageReceived,
        MessagesDelivered,
        StopAsked,
        PauseAsked,
        RunResumed,
        MemberChanged,
        WorkerReturned,
        WorkerSent,
    )
)


class Effect:
    """The block around anything that acts on the outside.

    Entering it waits until all that led to the effect is written, and for ever while the run is
    being paused; the run is quiet when no such block is open any more.
    """

    __slots__ = ("_timeline",)

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline

    async def __aenter__(self) -> None:
        timeline = self._timeline
        await timeline.wait_while_paused()
        timeline.running_effects += 1
        try:
            await timeline.wait_written(is_alone=timeline.running_effects == 1)
        except BaseException:
            timeline.running_effects -= 1
            raise

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._timeline.running_effects -= 1
        if self._timeline.is_pausing:
            self._timeline.pause()
