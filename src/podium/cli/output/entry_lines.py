"""Format the entries of a run as lines of text that state each error only once.

One error usually ends several operations: a model call, its agent, the agent's team and the run. Only the first line
about an error contains its message. The error of the run itself is not in these lines: the caller prints it last.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from msgspec import structs, to_builtins

from ...system.identity import get_username
from ...values.event import (
    CallFailed,
    Entry,
    IterationFailed,
    OperationEnded,
    RunResumed,
    RunStarted,
    ToolAnswered,
    TurnEnded,
    WorkerReturned,
)
from ...values.operation_path import parse_agent_name
from ...views.event_text import describe_entry, is_detail, name_subject
from .text import escape_for_terminal


class EntryLines:
    """Formats entries as lines. Entries for which `is_shown` returns False are skipped."""

    def __init__(self, is_shown: Callable[[Entry], bool] = lambda _: True) -> None:
        self._is_shown = is_shown
        self._told: dict[str, str] = {}
        """The error messages that were already printed, mapped to the operation for which each was first printed."""
        self._held: dict[str, Entry] = {}
        """Failed calls that are not printed yet, keyed by operation.

        If the operation ends because of the failed call, only the end is printed.
        """

    def add_entry(self, entry: Entry) -> list[str]:
        """Return the lines to print for the next entry."""
        held = self._take_held_call(entry)
        if isinstance(entry.event, CallFailed) and entry.event.wait is None:
            self._held[entry.operation] = entry
            return held
        return held + self._format_line(entry)

    def take_held_lines(self) -> list[str]:
        """Return the lines that were held back. Call this after the last entry."""
        held, self._held = list(self._held.values()), {}
        return [line for entry in held for line in self._format_line(entry)]

    def shorten_error(self, error: str) -> str:
        """Return the run's error without the messages already printed for operations below the run's first agent."""
        printed = [message for message, operation in self._told.items() if "/" in operation]
        short = _remove_messages(_clean_message(error), printed)
        return error if short == _clean_message(error) else short if ": " in short else f"{short} failed"

    def _take_held_call(self, entry: Entry) -> list[str]:
        """Return the lines to print now for a failed call that was held back.

        The list is empty if there is no such call, or if the operation ended because of it.
        """
        event = entry.event
        if entry.operation not in self._held or (isinstance(event, TurnEnded) and event.failure is not None):
            return []
        call = self._held.pop(entry.operation)
        assert isinstance(call.event, CallFailed)
        is_reason = (
            isinstance(event, OperationEnded)
            and event.failure is not None
            and call.event.message in event.failure.message
        )
        return [] if is_reason else self._format_line(call)

    def _format_line(self, entry: Entry) -> list[str]:
        if not self._is_shown(entry):
            return []
        message = _clean_message(_find_message(entry))
        if message and isinstance(entry.event, OperationEnded) and "/" not in entry.operation:
            return [f"{parse_agent_name(entry.operation)}: {entry.event.outcome}"]
        line = format_entry(self._shorten_tool_answer(entry))
        if line is None or not message:
            return [] if line is None else [line]
        short = _remove_messages(line, self._told)
        by = self._told.get(message, entry.operation)
        if isinstance(entry.event, OperationEnded) and not f"{by}/".startswith(f"{entry.operation}/"):
            short = f"{short} (same error as {parse_agent_name(by)})"
        self._told.setdefault(message, entry.operation)
        return [short]

    def _shorten_tool_answer(self, entry: Entry) -> Entry:
        """Return a tool's error without the messages that were already printed. Return other entries unchanged."""
        if not (isinstance(entry.event, ToolAnswered) and entry.event.is_error):
            return entry
        text = _remove_messages(_clean_message(entry.event.text), self._told)
        return structs.replace(entry, event=structs.replace(entry.event, text=text))


def _clean_message(message: str) -> str:
    """Return a message on one line, with control characters escaped."""
    return escape_for_terminal(" ".join(message.split()))


def _find_message(entry: Entry) -> str:
    """Return the error message in an entry, without the agent's name, or an empty string if there is none."""
    match entry.event:
        case OperationEnded(failure=failure) if failure is not None:
            return failure.message
        case CallFailed(message=message) | IterationFailed(message=message):
            return message
        case WorkerReturned(error=error):
            return error.removeprefix(f"{parse_agent_name(entry.operation)}: ")
    return ""


def _remove_messages(text: str, messages: Iterable[str]) -> str:
    # Remove the longest messages first, because one message can be the end of another.
    for message in sorted(messages, key=len, reverse=True):
        text = re.sub(rf": {re.escape(message)}(?=$|;|\))", "", text)
    return text


def format_entry(entry: Entry, *, has_details: bool = False) -> str | None:
    """Describe an entry in one line, or return None if it is not worth a line, such as streamed text.

    With `has_details`, routine entries also have a line.
    """
    if is_detail(entry.event) and not has_details:
        return None
    # Looking up the user takes longer than the rest, so it is done only for the events that may name another one.
    user = get_username() if isinstance(entry.event, RunStarted | RunResumed) else ""
    text = describe_entry(entry, user=user)
    if text is None:
        return None
    subject = name_subject(entry)
    return escape_for_terminal(f"{subject}: {text}" if subject else text)


def format_entry_json(entry: Entry) -> str:
    """Return an entry as one line of ASCII JSON, which cannot contain terminal control characters."""
    fields: dict[str, Any] = to_builtins(entry)
    event = fields.pop("event")
    top = {"type": event.pop("type"), "seq": entry.seq, "schema": entry.schema}
    return json.dumps({**top, **fields, "event": event}, separators=(",", ":"))
