"""Record the timeline of a run: its events in order, and the outcomes of steps that must not happen twice.

A run's code is ordinary async Python, and resuming a run means running it again. Every effect is a
step with a key. If the outcome of a step is on the timeline, the step is not executed again: its outcome is read from
there. Keys are paths in the run's tree (`lead/advice:legal#1/turn#1/call#1`), numbered
within their parent, so that parallel branches never share a counter.

Writes are queued in order and committed as fast as the store allows. Nothing acts on an entry that is
not yet written: `wait_written` is awaited before every effect that cannot safely be repeated, and before anything is
reported outside the run. So a crash loses at most the last entries, and nothing depends on them.

The store decides who can write and how lines are stored. The timeline is only a journal: what its events mean for the
execution is in its index.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from msgspec import structs

from ..values.errors import JournalMismatch
from ..values.event import (
    KINDS,
    ActionBegan,
    ActionRefused,
    Entry,
    Event,
    MessageReceived,
    ModelReplied,
    PermissionAnswered,
    PermissionAsked,
    RunResumed,
    RunStarted,
    ToolCalled,
    TurnEnded,
    decode_entry,
    encode_entry,
)
from .active_work import ActiveWork
from .journal_rows import GENESIS, JournalRow, Lease, chain_hash, must_survive_power_loss
from .open_requests import RequestIndex
from .redaction import NO_REDACTION, Redaction
from .run_index import INDEXED_KINDS, RunIndex


class RunLinks(Protocol):
    """What a run reaches beside its timeline."""

    def read_attachment(self, digest: str) -> bytes | None:
        """Return the content of the run's attachment with this digest, or None."""
        ...

    def store_artifact(self, digest: str, data: bytes) -> None:
        """Store the content of an artifact under its digest. The event for the artifact is recorded afterwards."""
        ...

    async def acknowledge(self, messages: Iterable[MessageReceived], *, is_delivered: bool = True) -> None:
        """Tell the runs of the agents that sent these messages whether they are delivered."""
        ...

    def report_waiting(self, request: str) -> None:
        """Report that the request or question with this id is written and is waiting for an answer."""
        ...


class NoLinks:
    """The links of a run that is only read or written, not executed: there are no attachments and nobody to tell."""

    def read_attachment(self, digest: str) -> bytes | None:
        return None

    def store_artifact(self, digest: str, data: bytes) -> None:
        """Store nothing."""

    async def acknowledge(self, messages: Iterable[MessageReceived], *, is_delivered: bool = True) -> None:
        """Tell nobody."""

    def report_waiting(self, request: str) -> None:
        """Tell nobody."""


NO_LINKS = NoLinks()


E = TypeVar("E", bound=Event)
Listener = Callable[[Entry], object]
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


class Timeline:
    """A run's timeline. Only the process that owns the run can append to it."""

    __slots__ = (
        "_clock",
        "_hash",
        "_lease",
        "_outcomes",
        "earlier_seconds",
        "index",
        "links",
        "listeners",
        "redaction",
        "run",
        "seq",
        "work",
    )

    def __init__(
        self,
        run: str,
        lease: Lease,
        *,
        redaction: Redaction = NO_REDACTION,
        clock: Callable[[], float] = time.time,
        links: RunLinks = NO_LINKS,
        listeners: Iterable[Listener] = (),
        has_foreign_entries: bool = False,
        parks_at_limits: bool = False,
    ) -> None:
        self.run = run
        self.redaction = redaction
        self.seq = 0
        self.earlier_seconds = 0.0
        """The total time, in seconds, that earlier owners spent on the run."""
        self.index = RunIndex(RequestIndex(redaction, clock, has_foreign_entries=has_foreign_entries))
        """What the events mean for the execution of the run."""
        self.work = ActiveWork(self, parks_at_limits=parks_at_limits)
        """What this process is doing for the run."""
        self.links = links
        self.listeners = list(listeners)
        """Called with each entry that is appended."""
        self._lease = lease
        self._clock = clock
        self._hash = GENESIS
        self._outcomes: dict[str, bytes] = {}

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
            if row.kind in INDEXED_KINDS:
                self.index.apply(decode_entry(row.line))
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
        if row.kind in INDEXED_KINDS:
            self.index.apply(entry)
        for listener in self.listeners:
            listener(entry)
        return entry

    @property
    def epoch(self) -> int:
        """The epoch number of this run's owner. Each new owner gets a higher number than all earlier owners."""
        return self._lease.epoch

    async def wait_written(self, *, is_alone: bool = True) -> None:
        """Wait until all appended entries are written."""
        await self._lease.wait_written(is_alone=is_alone)
