"""Read a lead's reply to a planning prompt: a plan, a direct answer, or the claim that nothing is missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from .dispatch import MARKER, Plan, parse_plan
from .json_output import find_json
from .verdict import claims_completion

NO_ASSIGNMENT = "its list of assignments is empty"


class PlanReply(NamedTuple):
    """A lead's parsed reply. `answer` is the answer in its JSON object, or the whole text if it has no such object."""

    plan: Plan
    answer: str
    claims_completion: bool
    problem: str = ""
    """The reason why a reply without assignments cannot be used as an answer, or "" if it can be used."""

    @property
    def assigns_tasks(self) -> bool:
        """Whether the reply is a plan, even if none of its tasks can be assigned."""
        has_unknown_names = bool(self.plan.skipped) and MARKER.search(self.answer) is not None
        is_empty_plan = bool(self.problem) and self.answer.strip() in ("", "[]")
        return bool(self.plan.assignments) or has_unknown_names or is_empty_plan


def read_plan_reply(text: str, workers: Iterable[str], *, aliases: Mapping[str, str]) -> PlanReply:
    """Return the plan in a reply. A JSON object can hold the assignments, an answer and a claim of completion."""
    if (found := _find_plan_object(text)) is None:
        plan = parse_plan(text, workers, aliases=aliases)
        problem = NO_ASSIGNMENT if find_json(text) == [] else ""
        return PlanReply(plan, text, claims_completion(text), problem)
    plan = parse_plan(msgspec.json.encode(found["assignments"]).decode(), workers, aliases=aliases)
    answer = found["answer"].strip() if isinstance(found.get("answer"), str) else ""
    is_complete = found.get("complete") is True and not plan.assignments
    problem = "" if answer or is_complete else NO_ASSIGNMENT
    return PlanReply(plan, answer, is_complete or claims_completion(text), problem)


def _find_plan_object(text: str) -> dict[str, Any] | None:
    found = find_json(text)
    return found if isinstance(found, dict) and isinstance(found.get("assignments"), list) else None
