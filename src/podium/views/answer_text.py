"""Find the text of a run's answer while it is streamed, for clients that show text as it arrives.

If a single agent gives the answer, its text is the answer. If a team or a handoff produces the answer, the answer is
complete only at the end. Text that was sent to a client cannot be taken back, so a restarted reply is added after it.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..values.agent import Agent
from ..values.event import (
    Entry,
    ModelReplied,
    RunStarted,
    SessionRevived,
    TextStreamed,
    TextSuperseded,
    ToolCalled,
    TurnEnded,
    TurnResumed,
    TurnStarted,
)
from ..values.operation_path import parse_agent_name

SEPARATOR = "\n\n"


class AnswerText:
    """The text of one run's answer, piece by piece."""

    def __init__(self) -> None:
        self._root = ""
        self._agents: dict[str, Agent] = {}
        self._streamed = ""
        """The text of the current reply so far."""
        self._early = ""
        """Text that was already added from a recorded reply. If the same text is streamed later, it is skipped."""
        self._is_apart = False
        """Whether the next piece starts a new paragraph."""

    def apply(self, entry: Entry) -> str:
        """Apply the next entry of the run, and return the piece of the answer that it adds."""
        if isinstance(entry.event, RunStarted):
            self._root, self._agents = entry.event.agent, {agent.name: agent for agent in entry.event.agents}
            return ""
        if not is_answer_operation(entry.operation, self._root, self._agents):
            return ""
        match entry.event:
            case TextStreamed(text=text):
                return self._add(self._skip_early(text))
            case ModelReplied(text=text) if text.startswith(self._streamed):
                rest = text[len(self._streamed) :]
                self._early += rest
                return self._add(rest)
            case TurnEnded(failure=None, text=text) if text.startswith(self._streamed):
                return self._add(text[len(self._streamed) :])
            case TextSuperseded() | TurnStarted() | TurnResumed() | SessionRevived():
                self._early = ""
                self._start_again()
            case ToolCalled():
                self._start_again()
        return ""

    def finish(self, text: str) -> str:
        """Return the part of the final answer `text` that was not streamed."""
        if self._streamed.strip() == text.strip():
            return ""
        if text.startswith(self._streamed):
            return self._add(text[len(self._streamed) :])
        self._start_again()
        return self._add(text)

    def _skip_early(self, text: str) -> str:
        """Return streamed text without the part that was already added from the recorded reply."""
        if self._early.startswith(text):
            self._early = self._early[len(text) :]
            return ""
        early, self._early = self._early, ""
        return text.removeprefix(early)

    def _add(self, text: str) -> str:
        if not text:
            return ""
        self._streamed += text
        before, self._is_apart = SEPARATOR if self._is_apart else "", False
        return before + text

    def _start_again(self) -> None:
        self._is_apart = self._is_apart or bool(self._streamed)
        self._streamed = ""


def is_answer_operation(operation: str, root: str, agents: Mapping[str, Agent]) -> bool:
    """Return whether the text of this operation is the run's answer.

    This is true if the agent has no team, router or handoff, and is the first agent or received the request only
    through routers.
    """
    first, *below = operation.split("/")
    agent = agents.get(parse_agent_name(operation))
    if first != root or agent is None or not all(place.startswith("route:") for place in below):
        return False
    return agent.team is None and agent.router is None and agent.handoff is None
