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
from ..terminal.entry_text import agent_of, line
from ..terminal.measure import width
from .console import Console

UNTOLD = RunStarted | RunEnded | RunPaused | TurnStarted | MessageReceived | PermissionAsked | QuestionAsked | StopAsked
"""What the person knows without being told, or is told in other words."""


class Flow:
    """Text that comes in pieces, as lines of at most so many columns."""

    def __init__(self, columns: Callable[[], int]) -> None:
        self.rest = ""
        """The beginning of a line that is not whole yet."""
        self._columns = columns

    def add(self, text: str) -> list[str]:
        """The lines that are whole with this."""
        *whole, last = (self.rest + text).split("\n")
        lines = [part for line in whole for part in self._fitting(line)]
        *full, self.rest = self._fitting(last)
        return lines + full

    def _fitting(self, line: str) -> list[str]:
        """A line in parts that fit, broken between words where it can be."""
        most = max(self._columns() - 1, 1)
        parts = []
        while width(line) > most:
            at = line.rfind(" ", 1, most + 1)
            at = at if at > 0 else most
            parts.append(line[:at])
            line = line[at:].removeprefix(" ")
        return [*parts, line]

    def end(self) -> list[str]:
        """What there is of a last line."""
        rest, self.rest = self.rest, ""
        return [rest] if rest.strip() else []


class Voice:
    """Shows one run on a console. `known` are notices that need not be repeated, and gets those that are new."""

    def __init__(self, console: Console, *, columns: Callable[[], int], known: set[str]) -> None:
        self.answer = ""
        """What the first agent answered in the end."""
        self.has_spoken = False
        """Whether any of it was shown as it was said."""
        self._console = console
        self._flow = Flow(columns)
        self._known = known
        self._agents: dict[str, Agent] = {}
        self._root = ""
        self._said = ""
        self._last = ""

    def hear(self, entry: Entry) -> None:
        """Take in the next entry of the run."""
        event = entry.event
        if isinstance(event, TurnStarted):
            self._console.busy(f"{event.agent} thinks")
        if isinstance(event, RunStarted):
            self._root, self._agents = event.agent, {agent.name: agent for agent in event.agents}
        if isinstance(event, OperationEnded) and entry.operation == self._root:
            self.answer = event.text
        if self._is_answering(entry.operation):
            self._hear_answer(entry)
        if self._is_worth_a_line(entry) and (said := line(entry)) is not None:
            self._pause()
            self._console.tell(f"  {said}")
        if isinstance(event, ToolCalled):
            self._console.busy(f"{agent_of(entry.operation)} uses {event.action.tool}")
        elif isinstance(event, ToolAnswered):
            self._console.busy(f"{agent_of(entry.operation)} thinks")

    def end(self) -> None:
        """Show what there is of a last line, and the answer where it was not shown as it was said."""
        self._console.busy("")
        self._pause()
        if self.answer and self.answer != self._last:
            self._console.tell(self.answer)

    def _hear_answer(self, entry: Entry) -> None:
        match entry.event:
            case TextStreamed(text=text):
                self._say(text)
            case TurnEnded(failure=None, text=text):
                self._say(unsaid(self._said, text))
                self._last, self._said = text, ""
                self._pause()
            case TextSuperseded() | TurnResumed() | SessionRevived():
                self._said = ""
                self._pause()
                self._console.tell("  (what was said last is said again)")

    def _say(self, text: str) -> None:
        if text:
            self._console.busy("")
            self._said += text
            self.has_spoken = True
            for whole in self._flow.add(text):
                self._console.tell(whole)
            self._console.hint(self._flow.rest)

    def _pause(self) -> None:
        """End the line that is being said."""
        for rest in self._flow.end():
            self._console.tell(rest)
        self._console.hint("")

    def _is_answering(self, operation: str) -> bool:
        """Whether what is said there is the answer: by the first agent, or by whoever it is routed to, alone."""
        first, *below = operation.split("/")
        agent = self._agents.get(agent_of(operation))
        if first != self._root or agent is None or not all(place.startswith("route:") for place in below):
            return False
        return agent.team is None and agent.router is None and agent.handoff is None

    def _is_worth_a_line(self, entry: Entry) -> bool:
        match entry.event:
            case Noticed(text=text):
                is_new = text not in self._known
                self._known.add(text)
                return is_new
            case ToolCalled() | SessionRevived():
                return True
            case event if isinstance(event, UNTOLD):
                return False
            case OperationStarted() | OperationEnded():
                return entry.operation != self._root and not self._is_answering(entry.operation)
            case TurnEnded():
                return not self._is_answering(entry.operation)
        return True


def unsaid(said: str, whole: str) -> str:
    """What of a text was not said yet, where its beginning is the end of what was said."""
    for size in range(min(len(said), len(whole)), 0, -1):
        if said.endswith(whole[:size]):
            return whole[size:]
    return f"\n{whole}" if said and not said.endswith("\n") else whole
