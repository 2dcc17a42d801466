"""Scopes: paths in a run's tree where events and step outcomes are recorded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

from ..values.errors import JournalMismatch
from ..values.event import Event, event_kind
from ..values.json import Json
from .journal_rows import compute_digest
from .timeline import Timeline

E = TypeVar("E", bound=Event)


class Scope:
    """A path in a run's tree where events and step outcomes are recorded.

    The path identifies a step that must not be executed twice. The digest is a hash of the step's inputs. A child scope
    has the same digest as its parent, unless the child adds inputs.
    """

    __slots__ = ("_counts", "digest", "operation", "path", "timeline")

    def __init__(self, timeline: Timeline, path: str, operation: str, digest: str) -> None:
        self.timeline = timeline
        self.path = path
        self.operation = operation
        self.digest = digest
        self._counts: dict[str, int] = {}

    def next_child(self, name: str, *about: Json) -> Scope:
        """Return the next child scope with this name, such as `turn#1` and then `turn#2`.

        The child's digest also covers the inputs in `about`.
        """
        count = self._counts[name] = self._counts.get(name, 0) + 1
        return self.child(f"{name}#{count}", *about)

    def child(self, segment: str, *about: Json) -> Scope:
        """Return the child scope whose path ends in `segment`. Its digest also covers the inputs in `about`."""
        digest = compute_digest(self.digest, about) if about else self.digest
        return Scope(self.timeline, f"{self.path}/{segment}", self.operation, digest)

    def for_attempt(self, attempt: int) -> Scope:
        """Return the scope for the given attempt at this step. The first attempt uses this scope itself."""
        if attempt == 1:
            return self
        return Scope(self.timeline, f"{self.path}~{attempt}", self.operation, self.digest)

    @property
    def has_outcome(self) -> bool:
        """Whether an outcome is recorded for this scope."""
        return self.timeline.has_outcome(self.path)

    def has_child_outcome(self, segment: str) -> bool:
        """Return whether an outcome is recorded for the child scope whose path ends in `segment`."""
        return self.timeline.has_outcome(f"{self.path}/{segment}")

    def find_outcome(self, *kinds: type[E]) -> E | None:
        """Return the outcome recorded for this scope, or None if there is none yet.

        Raise JournalMismatch if the outcome is not an event of one of these kinds, or was recorded for other inputs.
        """
        event = self.timeline.find_outcome(self.path, self.digest)
        if event is None or isinstance(event, kinds):
            return event
        raise JournalMismatch(
            f"run {self.timeline.run} recorded {event_kind(event)} for step {self.path}, expected "
            f"{' or '.join(wanted.__name__ for wanted in kinds)}; a different version of the code wrote it"
        )

    def record_outcome(self, event: E) -> E:
        """Record the outcome of this scope. A scope has at most one outcome."""
        entry = self.timeline.append(
            event, scope=self.path, operation=self.operation, key=self.path, digest=self.digest
        )
        return cast(E, entry.event)

    async def step(self, act: Callable[[], Awaitable[E]], *kinds: type[E]) -> E:
        """Return the recorded outcome; if there is none, call `act`, record its result and return it."""
        if (known := self.find_outcome(*kinds)) is not None:
            return known
        async with self.timeline.work.effect:
            return self.record_outcome(await act())

    def record(self, event: E) -> E:
        """Record an event in this scope once. A resumed run finds the event and does not record it again."""
        place = self.next_child(event_kind(event))
        if (known := place.find_outcome(type(event))) is not None:
            return known
        entry = self.timeline.append(
            event, scope=self.path, operation=self.operation, key=place.path, digest=self.digest
        )
        return cast(E, entry.event)

    def record_each_time(self, event: Event) -> None:
        """Record an event, such as streamed text, even if it is already recorded: a resumed run records it again."""
        self.timeline.append(event, scope=self.path, operation=self.operation)
