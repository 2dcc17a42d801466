"""Timelines that tests write by hand, entry by entry."""

from __future__ import annotations

from podium.values.agent import Agent
from podium.values.event import Entry, Event, RunStarted, event_kind
from podium.values.request import Request

SOURCE = "source"


class WrittenTimeline:
    """A timeline whose entries have the scopes and keys that a run would give them."""

    def __init__(self) -> None:
        started = RunStarted(agent="lead", request=Request(text="go"), agents=(Agent(name="lead"),))
        self.entries = [Entry(run=SOURCE, seq=1, at=1.0, scope="", event=started)]

    @property
    def last(self) -> int:
        return self.entries[-1].seq

    def add(self, event: Event, scope: str = "", *, key: str = "", operation: str = "lead") -> Entry:
        seq = self.last + 1
        at = Entry(
            run=SOURCE, seq=seq, at=float(seq), scope=scope, event=event, operation=operation if scope else "", key=key
        )
        self.entries.append(at)
        return at

    def record(self, scope: str, event: Event, *, operation: str = "lead") -> Entry:
        """Add an event that a scope records once."""
        kind = event_kind(event)
        number = 1 + sum(entry.scope == scope and event_kind(entry.event) == kind for entry in self.entries)
        return self.add(event, scope, key=f"{scope}/{kind}#{number}", operation=operation)

    def settle(self, scope: str, event: Event, *, operation: str = "lead") -> Entry:
        """Add the outcome of a scope."""
        return self.add(event, scope, key=scope, operation=operation)
