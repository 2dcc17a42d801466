"""Read a lead's reply to a planning prompt: a plan, a direct answer, or the claim that nothing is missing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from .dispatch import MARKER, Plan, parse_plan
from .json_output import find_json
from .verdict import claims_completion

WORKER = "worker"
"""The key for the worker in the format that leads are asked for. Under another key, only a member's name is a plan."""
MOST_LEVELS = 6
MOST_ITEMS = 200
_NAME_KEYS = (WORKER, "agent", "member", "owner", "assignee", "name")
_TASK_KEYS = ("task", "tasks", "description", "instruction", "instructions", "work")
_CUT_PLAN = re.compile(
    r"\s*(?:```\w*\s*)?[\[{][^A-Za-z]*(?:\"assignments\"[^A-Za-z]*)?\"worker\"\s*:\s*\"", re.IGNORECASE
)
"""The start of a plan whose JSON is incomplete."""
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


def is_plan(text: str, workers: Iterable[str], *, aliases: Mapping[str, str]) -> bool:
    """Return whether a reply assigns tasks to workers, in the format that was asked for or in one like it.

    For example, the tasks may have other keys or be the arguments of a call, or the JSON may be incomplete.
    """
    names = list(workers)
    if read_plan_reply(text, names, aliases=aliases).assigns_tasks:
        return True
    found = find_json(text)
    if found is None:
        return _CUT_PLAN.match(text) is not None
    return any(
        key == WORKER or parse_plan(_encode_item(name), names, aliases=aliases).assignments
        for key, name in islice(_iter_names(found), MOST_ITEMS)
    )


def _iter_names(value: Any, depth: int = 0) -> Iterator[tuple[str, str]]:
    """Yield the key and the name of everybody who gets a task in a JSON value."""
    if depth > MOST_LEVELS:
        return
    if isinstance(value, dict):
        keys = {str(key).casefold(): one for key, one in value.items()}
        if any(isinstance(keys.get(task), str) for task in _TASK_KEYS):
            yield from ((key, keys[key]) for key in _NAME_KEYS if isinstance(keys.get(key), str))
        if isinstance(keys.get("assignments"), dict):
            yield from ((WORKER, str(name)) for name in keys["assignments"])
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _iter_names(one, depth + 1)


def _encode_item(name: str) -> str:
    return msgspec.json.encode([{"worker": name, "task": "any"}]).decode()


def _find_plan_object(text: str) -> dict[str, Any] | None:
    found = find_json(text)
    return found if isinstance(found, dict) and isinstance(found.get("assignments"), list) else None
