"""What a run says in a chat: the answer as it comes, and a line for whatever else happens.

Where one agent answers, its words are shown while it says them. Where several work side by side,
each says what it does in lines of its own, and the answer comes at the end.
"""

from __future__ import annotations

from collections.abc import Callable

from ...values.agent import Agent
from ...values.event import (
    Entry,
    MessageReceived,
    Noticed,
    OperationEnded,
    OperationStarted,
    PermissionAsked,
    QuestionAsked,
    RunEnded,
    RunPaused,
    RunStarted,
    SessionRevived,
    StopAsked,
    TextStreamed,
    TextSuperseded,
    ToolAnswered,
    ToolCalled,
    TurnEnded,
    TurnResumed,
    TurnStarted,
)
from ...values.operation_path import parse_agent_name
from ..terminal.entry_text import format_entry
from ..terminal.text import display_width
from .console import ChatConsole

HIDDEN_EVENTS = (
    RunStarted | RunEnded | RunPaused | TurnStarted | MessageReceived | PermissionAsked | QuestionAsked | StopAsked
)
"""What the person knows without being told, or is told in other words."""


class LineWrapper:
    """Text that comes in pieces, as lines of at most so many columns."""

    def __init__(self, columns: Callable[[], int]) -> None:
        self.partial_line = ""
        """The beginning of a line that is not whole yet."""
        self._columns = columns

    def add_text(self, text: str) -> list[str]:
        """The lines that are whole with this."""
        *whole, last = (self.partial_line + text).split("\n")
        lines = [part for line in whole for part in self._wrap_line(line)]
        *full, self.partial_line = self._wrap_line(last)
        return lines + full

    def _wrap_line(self, line: str) -> list[str]:
        """A line in parts that fit, broken between words where it can be."""
        most = max(self._columns() - 1, 1)
        parts = []
        while display_width(line) > most:
            at = line.rfind(" ", 1, most + 1)
            at = at if at > 0 else most
            parts.append(line[:at])
            line = line[at:].removeprefix(" ")
        return [*parts, line]

    def take_last_line(self) -> list[str]:
        """What there is of a last line."""
        rest, self.partial_line = self.partial_line, ""
        return [rest] if rest.strip() else []


class TranscriptPrinter:
    """Shows one run on a console. `known` are notices that need not be repeated, and gets those that are new."""

    def __init__(self, console: ChatConsole, *, columns: Callable[[], int], known: set[str]) -> None:
        self.answer = ""
        """What the first agent answered in the end."""
        self.has_streamed = False
        """Whether any of it was shown as it was said."""
        self._console = console
        self._wrapper = LineWrapper(columns)
        self._known = known
        self._agents: dict[str, Agent] = {}
        self._root = ""
        self._streamed = ""
        self._last_text = ""

    def handle_entry(self, entry: Entry) -> None:
        """Take in the next entry of the run."""
        event = entry.event
        if isinstance(event, TurnStarted):
            self._console.show_activity(f"{event.agent} thinks")
        if isinstance(event, RunStarted):
            self._root, self._agents = event.agent, {agent.name: agent for agent in event.agents}
        if isinstance(event, OperationEnded) and entry.operation == self._root:
            self.answer = event.text
        if self._is_answering(entry.operation):
            self._handle_answer_entry(entry)
        if self._is_shown(entry) and (said := format_entry(entry)) is not None:
            self._end_line()
            self._console.print_line(f"  {said}")
        if isinstance(event, ToolCalled):
            self._console.show_activity(f"{parse_agent_name(entry.operation)} uses {event.action.tool}")
        elif isinstance(event, ToolAnswered):
            self._console.show_activity(f"{parse_agent_name(entry.operation)} thinks")

    def finish_transcript(self) -> None:
        """Show what there is of a last line, and the answer where it was not shown as it was said."""
        self._console.show_activity("")
        self._end_line()
        if self.answer and self.answer != self._last_text:
            self._console.print_line(self.answer)

    def _handle_answer_entry(self, entry: Entry) -> None:
        match entry.event:
            case TextStreamed(text=text):
                self._print_streamed_text(text)
            case TurnEnded(failure=None, text=text):
                self._print_streamed_text(skip_printed_text(self._streamed, text))
                self._last_text, self._streamed = text, ""
                self._end_line()
            case TextSuperseded() | TurnResumed() | SessionRevived():
                self._streamed = ""
                self._end_line()
                self._console.print_line("  (what was said last is said again)")

    def _print_streamed_text(self, text: str) -> None:
        if text:
            self._console.show_activity("")
            self._streamed += text
            self.has_streamed = True
            for whole in self._wrapper.add_text(text):
                self._console.print_line(whole)
            self._console.show_partial_line(self._wrapper.partial_line)

    def _end_line(self) -> None:
        """End the line that is being said."""
        for rest in self._wrapper.take_last_line():
            self._console.print_line(rest)
        self._console.show_partial_line("")

    def _is_answering(self, operation: str) -> bool:
        """Whether what is said there is the answer: by the first agent, or by whoever it is routed to, alone."""
        first, *below = operation.split("/")
        agent = self._agents.get(parse_agent_name(operation))
        if first != self._root or agent is None or not all(place.startswith("route:") for place in below):
            return False
        return agent.team is None and agent.router is None and agent.handoff is None

    def _is_shown(self, entry: Entry) -> bool:
        match entry.event:
            case Noticed(text=text):
                is_new = text not in self._known
                self._known.add(text)
                return is_new
            case ToolCalled() | SessionRevived():
                return True
            case event if isinstance(event, HIDDEN_EVENTS):
                return False
            case OperationStarted() | OperationEnded():
                return entry.operation != self._root and not self._is_answering(entry.operation)
            case TurnEnded():
                return not self._is_answering(entry.operation)
        return True


def skip_printed_text(printed: str, text: str) -> str:
    """What of a text was not said yet, where its beginning is the end of what was said."""
    for size in range(min(len(printed), len(text)), 0, -1):
        if printed.endswith(text[:size]):
            return text[size:]
    return f"\n{text}" if printed and not printed.endswith("\n") else text
