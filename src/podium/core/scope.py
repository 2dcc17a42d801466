"""A place in a run's tree: what is recorded there, and below it what must not happen twice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from ..values.errors import JournalMismatch
from ..values.event import Event, event_kind
from .journal import compute_digest
from .timeline import Timeline

E = TypeVar("E", bound=Event)


class Scope:
    """A place in a run's tree: what is recorded there, and below it what must not happen twice.

    A scope's own path is the key of one step. Its digest covers the inputs of that step and of
    everything below, until a place below adds inputs of its own.
    """

    __slots__ = ("_counts", "digest", "operation", "path", "timeline")

    def __init__(self, timeline: Timeline, path: str, *, operation: str, digest: str) -> None:
        self.timeline = timeline
        self.path = path
        self.operation = operation
        self.digest = digest
        self._counts: dict[str, int] = {}

    def next_child(self, name: str, *about: Any) -> Scope:
        """The next place of this name below: `turn#1`, `turn#2`. `about` are inputs that its digest covers."""
        count = self._counts[name] = self._counts.get(name, 0) + 1
        return self.child(f"{name}#{count}", *about)

    def child(self, segment: str, *about: Any) -> Scope:
        """The place below with exactly this name."""
        return Scope(
            self.timeline,
            f"{self.path}/{segment}",
            operation=self.operation,
            digest=compute_digest(self.digest, about) if about else self.digest,
        )

    def for_attempt(self, attempt: int) -> Scope:
        """The same place for another attempt; the first is the place itself."""
        if attempt == 1:
            return self
        return Scope(self.timeline, f"{self.path}~{attempt}", operation=self.operation, digest=self.digest)

    @property
    def has_outcome(self) -> bool:
        """Whether an outcome is recorded for this place."""
        return self.timeline.has_outcome(self.path)

    def find_outcome(self, *kinds: type[E]) -> E | None:
        """The outcome recorded for this place; None when there is none yet."""
        event = self.timeline.find_outcome(self.path, self.digest)
        if event is None or isinstance(event, kinds):
            return event
        raise JournalMismatch(
            f"run {self.timeline.run} recorded {event_kind(event)} for the step {self.path}, where "
            f"{' or '.join(wanted.__name__ for wanted in kinds)} was expected; it was written by other code"
        )

    def record_outcome(self, event: E) -> E:
        """Record the outcome of this place; it never gets another one."""
        entry = self.timeline.append(
            event, scope=self.path, operation=self.operation, key=self.path, digest=self.digest
        )
        return cast(E, entry.event)

    async def step(self, act: Callable[[], Awaitable[E]], *kinds: type[E]) -> E:
        """The recorded outcome; where there is none, what `act` comes back with, recorded."""
        if (known := self.find_outcome(*kinds)) is not None:
            return known
        async with self.timeline.effect:
            return self.record_outcome(await act())

    def record(self, event: E) -> E:
        """A fact that belongs here, once: running again finds it and records nothing."""
        place = self.next_child(event_kind(event))
        if (known := place.find_outcome(type(event))) is not None:
            return known
        entry = self.timeline.append(
            event, scope=self.path, operation=self.operation, key=place.path, digest=self.digest
        )
        return cast(E, entry.event)

    def record_each_time(self, event: Event) -> None:
        """A fact of this one attempt, such as streamed text: running again notes it again."""
        self.timeline.append(event, scope=self.path, operation=self.operation)
