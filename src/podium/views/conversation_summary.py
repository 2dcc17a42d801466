"""Summarise an agent's conversation from its timeline, without a model: its files, its tool calls and its replies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ..policy.rule import normalise_tool_name
from ..values.action import Action
from ..values.event import ActionBegan, Entry, ModelReplied, ToolAnswered, ToolCalled, WorkCommitted
from ..values.plain_text import truncate_text

SUMMARISED = (ModelReplied, ToolCalled, ToolAnswered, ActionBegan, WorkCommitted)
"""The events that a summary is built from."""
MOST_FILES = 30
MOST_CALLS = 20
MOST_REPLIES = 5
LONGEST_PATH = 120
LONGEST_ARGUMENT = 60
LONGEST_CALL = 160
LONGEST_REPLY = 300
LONGEST_LAST_REPLY = 2_000


class ConversationSummary:
    """The files, tool calls and replies of one operation's agent.

    The changed files come from all applied entries, including those of nested operations.
    """

    def __init__(self, operation: str) -> None:
        self._operation = operation
        self._calls: dict[str, Action] = {}
        """The tool calls, keyed by scope."""
        self._failed: set[str] = set()
        self._changed: dict[str, None] = {}
        self._replies: list[str] = []

    def apply(self, entry: Entry) -> None:
        """Apply the next entry."""
        match entry.event:
            case ActionBegan(action=action):
                self._changed.update(dict.fromkeys(action.outputs))
            case WorkCommitted(files=files):
                self._changed.update(dict.fromkeys(files))
            case _ if entry.operation != self._operation:
                pass
            case ModelReplied(text=text) if text.strip():
                self._replies.append(" ".join(text.split()))
            case ToolCalled(action=action):
                self._calls[entry.scope] = action
            case ToolAnswered(is_error=True):
                self._failed.add(entry.scope)

    def format(self) -> str:
        """Return the summary as lines of text, or an empty string if the agent did nothing."""
        return "\n".join(
            [
                *_format_list("Files read", self._iter_read_files(), MOST_FILES),
                *_format_list("Files changed", (_shorten(path, LONGEST_PATH) for path in self._changed), MOST_FILES),
                *_format_list("Tool calls", self._iter_calls(), MOST_CALLS),
                *_format_list("Replies", self._iter_replies(), MOST_REPLIES),
            ]
        )

    def _iter_read_files(self) -> Iterator[str]:
        paths = (
            str(action.arguments["path"])
            for scope, action in self._calls.items()
            if scope not in self._failed and normalise_tool_name(action.tool) == "Read" and "path" in action.arguments
        )
        yield from dict.fromkeys(_shorten(path, LONGEST_PATH) for path in paths)

    def _iter_calls(self) -> Iterator[str]:
        for scope, action in self._calls.items():
            given = " ".join(f"{name}={_shorten(value, LONGEST_ARGUMENT)}" for name, value in action.arguments.items())
            call = truncate_text(f"{action.tool} {given}".rstrip(), LONGEST_CALL)
            yield f"{call} (failed)" if scope in self._failed else call

    def _iter_replies(self) -> Iterator[str]:
        for number, text in enumerate(self._replies, 1):
            yield truncate_text(text, LONGEST_LAST_REPLY if number == len(self._replies) else LONGEST_REPLY)


def summarise_conversation(entries: Iterable[Entry], operation: str) -> str:
    """Return a summary of what an operation's agent did and said, or an empty string if it did nothing."""
    summary = ConversationSummary(operation)
    for entry in entries:
        summary.apply(entry)
    return summary.format()


def _format_list(title: str, lines: Iterable[str], most: int) -> list[str]:
    """Return a list as text: its title, the number of omitted items, if any, and the last `most` items."""
    listed: Sequence[str] = list(lines)
    if not listed:
        return []
    left_out = [f"- [{len(listed) - most:,} earlier omitted]"] if len(listed) > most else []
    return [f"{title} ({len(listed):,}):", *left_out, *(f"- {line}" for line in listed[-most:])]


def _shorten(value: object, longest: int) -> str:
    return truncate_text(" ".join(str(value).split()), longest)
