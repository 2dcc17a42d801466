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
            and (not self.steps or find_step(getattr(entry.event, "step", ""), entry.scope) in self.steps)
        )

    @property
    def is_empty(self) -> bool:
        """Whether the filter has no criteria and therefore accepts every entry."""
        return self == EntryFilter()


def find_step(named: str, scope: str) -> str:
    """Return the plan step of an entry: the step that its event names, or else the one that its scope belongs to."""
    return named or parse_plan_step(scope)
