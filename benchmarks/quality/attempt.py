"""One attempt at a task: what was reported about it, and what an independent check says."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Literal

from msgspec import Struct

Verdict = Literal["success", "honest failure", "false success"]

VERDICTS: tuple[Verdict, ...] = ("success", "honest failure", "false success")

_FENCE = re.compile(r"\A```[\w-]*\s*\n(.*?)\n?```\Z", re.DOTALL)
_MARKS = ("<tool_call", "<tools>", "[TOOL_CALLS]", "<function=", "[context:", "[rehearsed]")
_PLAN = re.compile(r'^@worker:|"assignments"\s*:|\A\{\s*"answer"\s*:', re.MULTILINE)
"""What a reply to a prompt for a plan contains, and the answer to a person does not."""


class Attempt(Struct, frozen=True, kw_only=True):
    """How an attempt ended. `detail` says what was reported, or what the check found."""

    task: str
    program: str
    verdict: Verdict
    seconds: float
    detail: str = ""


class Outcome(Struct, frozen=True, kw_only=True):
    """What a program reported at the end of an attempt, and what the check of its work found.

    `problem` is empty if the work is right.
    """

    is_reported_success: bool
    problem: str
    reported: str = ""

    @property
    def verdict(self) -> Verdict:
        """A reported failure, a reported success that the check confirms, or one that it refutes (a false success)."""
        if not self.is_reported_success:
            return "honest failure"
        return "false success" if self.problem else "success"

    @property
    def detail(self) -> str:
        return self.problem if self.is_reported_success else self.reported


class Score(Struct, frozen=True, kw_only=True):
    """The attempts of one program at one task, counted."""

    task: str
    program: str
    success: int
    honest_failure: int
    false_success: int
    median_seconds: float

    @property
    def tries(self) -> int:
        return self.success + self.honest_failure + self.false_success


def count_attempts(attempts: Iterable[Attempt]) -> list[Score]:
    """Count the attempts of each program at each task. Return the scores, in the order of the first attempts."""
    groups: dict[tuple[str, str], list[Attempt]] = {}
    for attempt in attempts:
        groups.setdefault((attempt.task, attempt.program), []).append(attempt)
    return [_score(task, program, of) for (task, program), of in groups.items()]


def _score(task: str, program: str, attempts: Sequence[Attempt]) -> Score:
    counts = Counter(attempt.verdict for attempt in attempts)
    seconds = sorted(attempt.seconds for attempt in attempts)
    return Score(
        task=task,
        program=program,
        success=counts["success"],
        honest_failure=counts["honest failure"],
        false_success=counts["false success"],
        median_seconds=seconds[len(seconds) // 2],
    )


def find_answer_problem(text: str, *, request: str = "", contains: Sequence[str] = ()) -> str:
    """Return why a text is not an answer, or an empty string.

    This is deliberately not the product's own code: an answer is not empty, not a tool call or another machine text,
    not the request again, and contains one of the given words if there are any.
    """
    plain = text.strip()
    if not plain:
        return "the answer is empty"
    if plain == request.strip():
        return "the answer is the request"
    if mark := next((mark for mark in _MARKS if mark in plain), ""):
        return f"the answer contains {mark}"
    if _PLAN.search(plain) is not None:
        return f"the answer is a plan: {plain[:80]}"
    if (fenced := _FENCE.match(plain)) is not None:
        plain = fenced[1].strip()
    if _is_call(plain):
        return f"the answer is a tool call: {plain[:80]}"
    if contains and not any(word.casefold() in plain.casefold() for word in contains):
        return f"the answer mentions none of {', '.join(contains)}: {plain[:80]}"
    return ""


def _is_call(text: str) -> bool:
    """Return whether a text is a JSON object with `arguments` or `parameters`, also with doubled outer braces."""
    for candidate in (text, text[1:-1], text[1:]):
        with suppress(ValueError):
            value = json.loads(candidate)
            return isinstance(value, dict) and bool(value.keys() & {"arguments", "parameters"})
    return False
