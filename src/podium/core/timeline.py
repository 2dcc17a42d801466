"""Record the timeline of a run: its events in order, and the outcomes of steps that must not happen twice.

A run's code is ordinary async Python, and resuming a run means running it again. Every effect is a
step with a key. If the outcome of a step is on the timeline, the step is not executed again: its outcome is read from
there. Keys are paths in the run's tree (`lead/advice:legal#1/turn#1/call#1`), numbered
within their parent, so that parallel branches never share a counter.

Writes are queued in order and committed as fast as the store allows. Nothing acts on an entry that is
not yet written: `wait_written` is awaited before every effect that cannot safely be repeated, and before anything is
reported outside the run. So a crash loses at most the last entries, and nothing depends on them.

The store decides who can write and how lines are stored. Other modules interpret the events.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from msgspec import structs

from ..values.action import Action
from ..values.agent import Budget
from ..values.errors import JournalMismatch
from ..values.event import (
    KINDS,
    ActionBegan,
    ActionRefused,
    CallCut,
    CallFailed,
    Entry,
    Event,
    MemberChanged,
    MessageAcknowledged,
    MessageReceived,
    MessagesDelivered,
    ModelReplied,
    PauseAsked,
    PermissionAnswered,
    PermissionAsked,
    QuestionAnswered,
    QuestionAsked,
    RunResumed,
    RunStarted,
    StopAsked,
    ToolCalled,
    TurnEnded,
    WorkerReturned,
    WorkerSent,
    decode_entry,
    encode_entry,
)
from ..values.usage import NO_USAGE, Usage, sum_usage
from .effect import Effect
from .journal_rows import GENESIS, JournalRow, Lease, chain_hash, must_survive_power_loss
from .limit_waits import LimitWaits
from .open_requests import is_expired
from .proof import PROVING_EVENTS, WorkProof
from .redaction import NO_REDACTION, Redaction

if TYPE_CHECKING:
    from asyncio import Event as Flag

    from .clock import RunTimeouts

E = TypeVar("E", bound=Event)

_ACTED_ON = (
    ActionBegan,
    ActionRefused,
    ModelReplied,
    PermissionAnswered,
    PermissionAsked,
    RunStarted,
    ToolCalled,
    TurnEnded,
)
"""Events with what is executed or compared later: definitions, rules and calls.

Only known secrets are redacted in them, because a file that a model writes must contain the URLs that it gave.
"""


class UnreturnedWorker(NamedTuple):
    """A worker that has not returned a result yet: the operation that started the worker, and the worker's budget."""

    operation: str
    budget: Budget | None


class Denial(NamedTuple):
    """The denial of an agent's request, by a person or by Podium."""

    agent: str
    by: str
    comment: str
    at: float


class Timeline:
    """A run's timeline. Only the process that owns the run can append to it."""

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
        """The total time, in seconds, that earlier owners spent on the run."""
        self.usage: dict[str, Usage] = {}
        self.last_replies: dict[str, ModelReplied] = {}
        """The last model reply of each operation."""
        self.messages: dict[str, MessageReceived] = {}
        self._message_flags: list[Flag] = []
        """Set when the next message arrives."""
        self.offered_messages: set[str] = set()
        """The ids of messages that an agent has been offered and has not accepted yet."""
        self.receipts: dict[str, bool] = {}
        """Whether each message from this run's agents was delivered, keyed by message id. Excludes pending messages."""
        self.on_delivery: Callable[[Sequence[MessageReceived]], Awaitable[None]] | None = None
        """Called just before messages are recorded as delivered."""
        self.answers: dict[str, PermissionAnswered | QuestionAnswered] = {}
        """The answers, keyed by the id of the request or question."""
        self.asked: dict[str, PermissionAsked | QuestionAsked] = {}
        """The requests and questions to the user, keyed by id."""
        self.approvals: dict[str, str] = {}
        """Who approved each action that is allowed for the rest of this run, keyed by the action's `repeat_key`."""
        self.approved_texts: dict[str, str] = {}
        """What the person who approved each of these actions was shown, with the same keys."""
        self.granted_rules: tuple[str, ...] = ()
        """The allow rules that were granted permanently in this run."""
        self.saved_rules: tuple[str, ...] = ()
        """The rules that the user has saved since the run started, as they were last read."""
        self.read_saved_rules: Callable[[], Awaitable[tuple[str, ...]]] | None = None
        """Reads the saved rules from the store. None if this process does not read them."""
        self.denials: dict[str, list[Denial]] = {}
        """The denials of each action, keyed by its `effect_hash`."""
        self.changed_files: dict[str, set[str]] = {}
        """The files that each operation has changed."""
        self.unreturned_workers: dict[str, UnreturnedWorker] = {}
        """The workers that have not returned, keyed by run id."""
        self.member_changes: dict[str, MemberChanged] = {}
        """The changes made to agents since the run started, keyed by agent name."""
        self.pauses = 0
        """How many times the run was paused and resumed."""
        self.stop_asked = False
        self.is_pausing = False
        self.on_quiet: Callable[[], object] = lambda: None
        self.on_waiting: Callable[[str], object] = lambda id: None
        """Called with the id of each request or question when it is written and is waiting for an answer."""
        self.listeners: list[Callable[[Entry], object]] = []
        """Called with each entry that is appended."""
        self.read_attachment: Callable[[str], bytes | None] = lambda digest: None
        """Returns the content of the run's attachment with this digest, or None."""
        self.store_artifact: Callable[[str, bytes], object] = lambda digest, data: None
        """Stores the content of an artifact under its digest. Called before the event for the artifact is recorded."""
        self._lease = lease
        self._clock = clock
        self._hash = GENESIS
        self._outcomes: dict[str, bytes] = {}
        self._answer_flags: dict[str, Flag] = {}
        self.has_foreign_entries = False
        """Whether another machine may have written some of the entries."""
        self.running_effects = 0
        """The number of external effects, such as model calls and commands, that are in progress."""
        self.limit_waits = LimitWaits()
        self.proof = WorkProof()
        """What the calls of the run's agents prove about their work."""

    def load(self, rows: Iterable[JournalRow]) -> None:
        """Load the rows that earlier owners wrote. Most lines are decoded only when they are needed."""
        began: float | None = None
        last: JournalRow | None = None
        for row in rows:
            if began is None or row.kind == KINDS[RunResumed]:
                self._add_earlier_seconds(began, last)
                began = decode_entry(row.line).at
            last = row
            if row.key:
                self._outcomes[row.key] = row.line
            if row.kind in _INDEXED_KINDS or row.kind in _PROVING_KINDS:
                entry = decode_entry(row.line)
                self._index_event(entry.operation, entry.event)
                if row.kind in _PROVING_KINDS:
                    self.proof.apply(entry)
            self.seq, self._hash = row.seq, row.hash
        self._add_earlier_seconds(began, last)

    def _add_earlier_seconds(self, began: float | None, last: JournalRow | None) -> None:
        if began is not None and last is not None:
            # The difference is negative if the last entry was copied into a fork, because it is older than the fork.
            self.earlier_seconds += max(0.0, decode_entry(last.line).at - began)

    def has_outcome(self, key: str) -> bool:
        """Return whether an outcome is recorded for a step."""
        return key in self._outcomes

    def find_events_below(self, path: str, *kinds: type[E], operation: str = "") -> list[E]:
        """Return the keyed events of these kinds that are recorded below a path, in order.

        With `operation`, return only the events of that operation, not those of operations below it.
        """
        found: list[E] = []
        for entry in self.find_entries_below(path, *kinds):
            if isinstance(entry.event, kinds) and (not operation or entry.operation == operation):
                found.append(entry.event)
        return found

    def find_entries_below(self, path: str, *kinds: type[E]) -> list[Entry]:
        """Return the keyed entries with events of these kinds that are recorded below a path, in order."""
        prefix = f"{path}/"
        names = [f'"type":"{KINDS[one]}"'.encode() for one in kinds]
        found: list[Entry] = []
        for key, line in self._outcomes.items():
            if key.startswith(prefix) and any(name in line for name in names):
                entry = decode_entry(line)
                if isinstance(entry.event, kinds):
                    found.append(entry)
        return found

    def outcome_time(self, key: str) -> float | None:
        """Return when the outcome of a step was recorded, or None if the step has no outcome."""
        line = self._outcomes.get(key)
        return None if line is None else decode_entry(line).at

    def find_outcome(self, key: str, wanted: str) -> Event | None:
        """Return the recorded outcome of a step, or None if the step has no outcome yet.

        Raise JournalMismatch if the outcome was recorded with a digest other than `wanted`.
        """
        line = self._outcomes.get(key)
        if line is None:
            return None
        entry = decode_entry(line)
        if entry.digest != wanted:
            raise JournalMismatch(
                f"run {self.run} recorded step {key} with the input {entry.digest}, but the step's input is now "
                f"{wanted}; a run must be resumed with the inputs that it started with"
            )
        return entry.event

    def append(
        self, event: Event, *, scope: str, operation: str = "", key: str = "", digest: str = "", mail: int | None = None
    ) -> Entry:
        """Append an event to the timeline."""
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
        return self._append_entry(entry, mail=mail)

    def append_copy(self, entry: Entry) -> Entry:
        """Append a copy of another run's entry, with the same time, key and digest."""
        return self._append_entry(structs.replace(entry, run=self.run, seq=self.seq + 1))

    def _append_entry(self, entry: Entry, *, mail: int | None = None) -> Entry:
        line = encode_entry(entry)
        with_urls = not isinstance(entry.event, _ACTED_ON)
        if (clean := self.redaction.redact_line(line, with_urls=with_urls)) != line:
            # Continue with the redacted entry, because that is what a resumed run will load.
            line, entry = clean, decode_entry(clean)
        event, key = entry.event, entry.key
        row = JournalRow(
            self.run, entry.seq, self._lease.epoch, KINDS[type(event)], key, line, chain_hash(self._hash, line)
        )
        self._lease.append(row, survives_power_loss=must_survive_power_loss(event), mail=mail)
        self.seq, self._hash = row.seq, row.hash
        if key:
            self._outcomes[key] = line
        if row.kind in _INDEXED_KINDS:
            self._index_event(entry.operation, event)
        if isinstance(event, PROVING_EVENTS):
            self.proof.apply(entry)
        for listener in self.listeners:
            listener(entry)
        return entry

    @property
    def epoch(self) -> int:
        """The epoch number of this run's owner. Each new owner gets a higher number than all earlier owners."""
        return self._lease.epoch

    @property
    def effect(self) -> Effect:
        """The context manager that must be entered around every external effect."""
        return Effect(self)

    @cached_property
    def timeouts(self) -> RunTimeouts:
        """The active timeouts of the run."""
        return _load_timeouts_class()()

    async def wait_written(self, *, is_alone: bool = True) -> None:
        """Wait until all appended entries are written."""
        await self._lease.wait_written(is_alone=is_alone)

    @property
    def only_waits_for_limits(self) -> bool:
        """Whether agents are waiting for provider limits to reset, and nothing else in the run is active."""
        waits = self.limit_waits
        is_idle = waits.busy == 0 and self.running_effects == 0 and not self.unreturned_workers
        return is_idle and waits.next_wait is not None and self.asked.keys() <= self.answers.keys()

    async def wait_while_paused(self) -> None:
        """Block forever if the run is being paused, so that no timeout is reported while the run stops."""
        if self.is_pausing:
            from anyio import sleep_forever  # imported here because reading a store needs no event loop

            await sleep_forever()

    def pause(self) -> None:
        """Prevent new effects from starting, and call `on_quiet` when the last running effect ends."""
        self.is_pausing = True
        if self.running_effects == 0:
            self.on_quiet()

    def list_undelivered(self, agent: str) -> list[MessageReceived]:
        """Return the messages to this agent that have been neither delivered nor offered to one of its sessions."""
        offered = self.offered_messages
        return [message for message in self.messages.values() if message.to == agent and message.id not in offered]

    async def wait_messages(self, is_receiver: Callable[[str], bool]) -> list[MessageReceived]:
        """Wait until there are undelivered messages to agents for which `is_receiver` is true, and return them."""
        while True:
            agents = {message.to for message in self.messages.values() if is_receiver(message.to)}
            if found := [message for agent in agents for message in self.list_undelivered(agent)]:
                return found
            from asyncio import Event as Flag  # imported here because reading a store needs no event loop

            self._message_flags.append(flag := Flag())
            await flag.wait()

    async def wait_answer(self, id: str) -> PermissionAnswered | QuestionAnswered:
        """Wait for the answer to the request or question with this id, and return it."""
        while id not in self.answers:
            from asyncio import Event as Flag  # imported here because reading a store needs no event loop

            await self._answer_flags.setdefault(id, Flag()).wait()
        return self.answers[id]

    def usage_below(self, below: str = "") -> Usage:
        """Return the total usage of the operations at or below a path."""
        prefix = f"{below}/" if below else ""
        return sum_usage(used for path, used in self.usage.items() if f"{path}/".startswith(prefix))

    def worker_budgets_below(self, below: str = "") -> list[Budget]:
        """Return the budgets of the workers that were started at or below a path and have not returned."""
        prefix = f"{below}/" if below else ""
        out = (one for one in self.unreturned_workers.values() if f"{one.operation}/".startswith(prefix))
        return [one.budget for one in out if one.budget is not None]

    def files_changed_below(self, path: str) -> set[str]:
        """Return the files that the operations at or below a path have changed."""
        prefix = f"{path}/" if path else ""
        found = [files for operation, files in self.changed_files.items() if f"{operation}/".startswith(prefix)]
        return set().union(*found)

    def _index_event(self, operation: str, event: Event) -> None:
        match event:
            case ModelReplied() | CallFailed() | CallCut() | WorkerReturned():
                self.usage[operation] = self.usage.get(operation, NO_USAGE) + event.usage
                if isinstance(event, ModelReplied):
                    self.last_replies[operation] = event
                elif isinstance(event, WorkerReturned):
                    self.unreturned_workers.pop(event.run, None)
                    self.changed_files.setdefault(operation, set()).update(event.files)
            case WorkerSent():
                self.unreturned_workers[event.run] = UnreturnedWorker(operation, event.budget)
            case MessageReceived():
                self.messages[event.id] = event
                flags, self._message_flags = self._message_flags, []
                for flag in flags:
                    flag.set()
            case MessagesDelivered():
                for id in event.ids:
                    self.messages.pop(id, None)
            case MessageAcknowledged():
                self.receipts[event.id] = event.is_delivered
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
        """Index an answer. If a request is answered twice, the first answer counts."""
        if self.answers.setdefault(event.id, event) is not event:
            return
        asked = self.asked.get(event.id)
        if isinstance(event, PermissionAnswered) and isinstance(asked, PermissionAsked):
            action = asked.action
            if not event.is_allowed:
                denial = Denial(action.agent, event.by or "podium", event.comment, self._clock())
                self.denials.setdefault(action.effect_hash, []).append(denial)
            # An answer that arrives after the request expired has no effect: the gate asks again.
            elif event.decision != "once" and not is_expired(asked, at=event.at):
                self.approvals[action.repeat_key] = event.by or "a person"
                self.approved_texts[action.repeat_key] = asked.shown
                if event.decision == "always" and event.rule == asked.always != "" and self._is_derived(asked):
                    self.granted_rules += (event.rule,)
        if event.id in self._answer_flags:
            self._answer_flags.pop(event.id).set()

    def find_approver(self, action: Action, shown: str) -> str:
        """Return who approved an action for the rest of this run, or an empty string if nobody did.

        Another machine may have recorded the request, and shown the person something else than `shown`.
        """
        key = action.repeat_key
        is_unseen = self.has_foreign_entries and self.approved_texts.get(key) != self.redaction.redact_text(shown)
        return "" if is_unseen else self.approvals.get(key, "")

    def _is_derived(self, asked: PermissionAsked) -> bool:
        """Return whether the rule that a request offered follows from its action, unless this machine recorded it."""
        if not self.has_foreign_entries:
            return True
        from ..policy import generalised  # imported here because few runs move between machines

        return generalised(asked.action) == asked.always


@cache
def _load_timeouts_class() -> type[RunTimeouts]:
    from .clock import RunTimeouts  # imported here because reading a store needs no event loop

    return RunTimeouts


_PROVING_KINDS = frozenset(KINDS[event] for event in PROVING_EVENTS)
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
        MessageAcknowledged,
        StopAsked,
        PauseAsked,
        RunResumed,
        MemberChanged,
        WorkerReturned,
        WorkerSent,
    )
)
