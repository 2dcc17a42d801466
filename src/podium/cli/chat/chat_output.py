"""Print a run in a chat: the answer, and a line for each other event worth showing.

If a single agent gives the answer, its text is printed as it is streamed. If a team or a handoff produces the answer,
the answer is printed at the end.
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
from ...views.answer_text import is_answer_operation
from ..output.entry_lines import EntryLines
from .console import ChatConsole
from .reply_printer import LineReplyPrinter, MarkdownReplyPrinter, ReplyPrinter

HIDDEN_EVENTS = (
    RunStarted | RunEnded | RunPaused | TurnStarted | MessageReceived | PermissionAsked | QuestionAsked | StopAsked
)
"""Events that are not printed: the user caused them, or they are reported in another way."""


class TranscriptPrinter:
    """Prints one run on a console. `known` contains the notices that were already printed; new notices are added."""

    def __init__(self, console: ChatConsole, *, columns: Callable[[], int], known: set[str]) -> None:
        self.answer = ""
        """The final answer from the first agent."""
        self.has_streamed = False
        """Whether any part of the answer was printed as it was streamed."""
        self._console = console
        self._reply: ReplyPrinter = (
            MarkdownReplyPrinter(console) if console.can_render else LineReplyPrinter(console, columns)
        )
        self._lines = EntryLines(self._is_shown)
        self._known = known
        self._agents: dict[str, Agent] = {}
        self._root = ""
        self._streamed = ""
        self._last_text = ""

    def handle_entry(self, entry: Entry) -> None:
        """Handle the next entry of the run."""
        event = entry.event
        if isinstance(event, TurnStarted):
            self._console.show_activity(f"{event.agent} is thinking")
        if isinstance(event, RunStarted):
            self._root, self._agents = event.agent, {agent.name: agent for agent in event.agents}
        if isinstance(event, OperationEnded) and entry.operation == self._root:
            self.answer = event.text
        if self._is_answering(entry.operation):
            self._handle_answer_entry(entry)
        self._print_event_lines(self._lines.add_entry(entry))
        if isinstance(event, ToolCalled):
            self._console.show_activity(f"{parse_agent_name(entry.operation)} is using {event.action.tool}")
        elif isinstance(event, ToolAnswered):
            self._console.show_activity(f"{parse_agent_name(entry.operation)} is thinking")

    def finish_transcript(self) -> None:
        """Print an incomplete last line, and the answer if it was not streamed."""
        self._console.show_activity("")
        self._print_event_lines(self._lines.take_held_lines())
        self._reply.end_text()
        if self.answer and self.answer != self._last_text:
            self._console.print_agent_text(self.answer)

    def shorten_error(self, error: str) -> str:
        """Return the run's error without the messages that this printer has already printed."""
        return self._lines.shorten_error(error)

    def _print_event_lines(self, lines: list[str]) -> None:
        for line in lines:
            self._reply.end_text()
            self._console.print_line(f"  {line}")

    def _handle_answer_entry(self, entry: Entry) -> None:
        match entry.event:
            case TextStreamed(text=text):
                self._print_streamed_text(text)
            case TurnEnded(failure=None, text=text):
                self._print_streamed_text(skip_printed_text(self._streamed, text))
                self._last_text, self._streamed = text, ""
                self._reply.end_text()
            case TextSuperseded() | TurnResumed() | SessionRevived():
                self._streamed = ""
                self._reply.end_text()
                self._console.print_line("  (the reply starts over)")

    def _print_streamed_text(self, text: str) -> None:
        if text:
            self._console.show_activity("")
            self._streamed += text
            self.has_streamed = True
            self._reply.add_text(text)

    def _is_answering(self, operation: str) -> bool:
        return is_answer_operation(operation, self._root, self._agents)

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
    """Return `text` without its longest prefix that is also a suffix of `printed`.

    If there is no such prefix, return all of `text`, on a new line if `printed` does not end with a line break.
    """
    for size in range(min(len(printed), len(text)), 0, -1):
        if printed.endswith(text[:size]):
            return text[size:]
    return f"\n{text}" if printed and not printed.endswith("\n") else text
