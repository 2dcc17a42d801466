"""Select entries of a timeline by agent, plan step, kind and time."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ..values.event import Entry, event_kind
from ..values.operation_path import parse_agent_name, parse_plan_step


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryFilter:
    """Criteria that select entries. An empty criterion accepts every entry."""

    agents: Collection[str] = ()
    steps: Collection[str] = ()
    kinds: Collection[str] = ()
    since: float = 0.0

    def accepts(self, entry: Entry) -> bool:
        """Return whether an entry meets all criteria."""
        return (
            entry.at >= self.since
            and (not self.kinds or event_kind(entry.event) in self.kinds)
            and (not self.agents or parse_agent_name(entry.operation) in self.agents)
            and (not self.steps or self._find_step(entry) in self.steps)
        )

    def _find_step(self, entry: Entry) -> str:
        named = getattr(entry.event, "step", "")
        return named if isinstance(named, str) and named else parse_plan_step(entry.scope)
