"""Detect tool calls that repeat earlier ones, so that a model cannot do the same thing over and over."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...core.engine import Tool, ToolAnswer
from ...values.event import ToolUse

MOST_IDENTICAL_CALLS = 3
"""The number of consecutive identical calls after which the model may call no more tools and must write a report."""
LONGEST_CYCLE = 4
"""The maximum number of calls in a cycle, such as reading a file and running a check in turn."""

_NUMBER = re.compile(r"\d+(?:\.\d+)?")
"""Numbers in answers, such as durations, differ although nothing has changed."""


class RepeatedCalls:
    """Tracks the calls in a turn. A call is a repeat if the call directly before it was identical.

    Several calls that are made in turn, with the same answers each time apart from numbers, are a cycle. Calls to
    polling tools, whose answers can change on their own, are never repeats and not part of a cycle.
    """

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self.identical_calls = 0
        """The number of identical calls in a row, ending with the last call."""
        self._tools = tools
        self._last_call: ToolUse | None = None
        self._last_answer = ToolAnswer(text="")
        self._recent: deque[tuple[ToolUse, str]] = deque(maxlen=LONGEST_CYCLE * MOST_IDENTICAL_CALLS)
        """The last calls, with their answers without numbers."""

    @property
    def is_looping(self) -> bool:
        """Whether the model made the same call, or the same cycle of calls, too many times in a row."""
        return self.identical_calls >= MOST_IDENTICAL_CALLS or self.cycle_length > 0

    @property
    def cycle_length(self) -> int:
        """How many calls the cycle has with which the turn's calls end, or 0 if there is none."""
        recent = list(self._recent)
        for length in range(2, LONGEST_CYCLE + 1):
            last = recent[-length * MOST_IDENTICAL_CALLS :]
            is_whole = len(last) == length * MOST_IDENTICAL_CALLS
            if is_whole and all(_is_same(last[place], last[place - length]) for place in range(length, len(last))):
                return length
        return 0

    def find_repeats(self, calls: Sequence[ToolUse]) -> set[int]:
        """Return the positions, counted from 1, of the calls that repeat the call before them."""
        repeats: set[int] = set()
        last = self._last_call
        for number, call in enumerate(calls, 1):
            if last is not None and self._is_repeat(call, last):
                repeats.add(number)
            last = call
        return repeats

    def add_answers(self, calls: Sequence[ToolUse], answers: Mapping[int, ToolAnswer]) -> list[ToolAnswer]:
        """Return the results of all calls in order. `answers` maps positions to the results of the calls that were run.

        A repeat gets the result of the call that it repeats, with a note.
        """
        found: list[ToolAnswer] = []
        for number, call in enumerate(calls, 1):
            answer = answers.get(number)
            if answer is None:
                self.identical_calls += 1
                answer = replace(self._last_answer, text=_describe_repeat(call.name, self._last_answer))
            else:
                self.identical_calls = 1
                self._last_answer = answer
            self._last_call = call
            self._remember(call, answer)
            found.append(answer)
        return found

    def _remember(self, call: ToolUse, answer: ToolAnswer) -> None:
        tool = self._tools.get(call.name)
        if tool is not None and tool.is_polling:
            self._recent.clear()
        else:
            self._recent.append((call, _NUMBER.sub("", answer.text)))

    def _is_repeat(self, call: ToolUse, last: ToolUse) -> bool:
        tool = self._tools.get(call.name)
        is_same = call.name == last.name and call.arguments == last.arguments and call.unreadable == last.unreadable
        return is_same and (tool is None or not tool.is_polling)


def _is_same(one: tuple[ToolUse, str], other: tuple[ToolUse, str]) -> bool:
    return (one[0].name, one[0].arguments, one[1]) == (other[0].name, other[0].arguments, other[1])


def _describe_repeat(name: str, answer: ToolAnswer) -> str:
    failed = " and failed" if answer.is_error else ""
    return (
        f"{name} was already called with these arguments{failed}, so the call was not repeated. Continue with the "
        f"next step, or report what was done. The earlier answer was:\n{answer.text}"
    )
