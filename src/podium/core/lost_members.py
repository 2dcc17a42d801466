"""Find the members that their teams had to work without, because their providers have no such model."""

from __future__ import annotations

from ..values.errors import Failure
from ..values.event import OperationEnded
from ..values.operation_path import parse_agent_name
from .scope import Scope

MEMBER = "member:"


def find_lost_members(place: Scope) -> list[Failure]:
    """Return why members below a scope failed: one failure for each that has an unknown model and completed no task."""
    lost: dict[tuple[str, str], Failure] = {}
    done: set[tuple[str, str]] = set()
    for entry in place.timeline.find_entries_below(place.path, OperationEnded):
        team, _, segment = entry.operation.rpartition("/")
        if not segment.startswith(MEMBER) or not isinstance(entry.event, OperationEnded):
            continue
        member = (team, parse_agent_name(entry.operation))
        failure = entry.event.failure
        if failure is None:
            done.add(member)
        elif failure.is_unknown_model:
            lost[member] = failure
    return [failure for member, failure in lost.items() if member not in done]
