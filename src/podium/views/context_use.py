"""Determine the size of each agent's conversation in a run, in tokens, from the usage of its model calls."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec import Struct

from ..values.event import ContextCompacted, Entry, ModelReplied, OperationEnded, SessionRevived, TurnStarted


class ContextUse(Struct, frozen=True, kw_only=True):
    """The size of an agent's conversation with a model, such as `openai:gpt-5-mini`, after its last call."""

    agent: str
    model: str
    tokens: int


@dataclass(slots=True)
class ContextUseBuilder:
    """Determines the sizes of the conversations in a run, entry by entry."""

    _turns: dict[str, TurnStarted] = field(default_factory=dict)
    """The last turn of each operation."""
    _uses: dict[str, ContextUse] = field(default_factory=dict)
    """The conversation of each operation that has not ended."""
    _last: ContextUse | None = None

    def apply(self, entry: Entry) -> None:
        """Apply the next entry."""
        match entry.event:
            case TurnStarted() as turn:
                self._turns[entry.operation] = turn
            case ModelReplied() as replied:
                self._apply_reply(entry.operation, replied)
            case ContextCompacted() | SessionRevived():
                self._uses.pop(entry.operation, None)
            case OperationEnded():
                self._last = self._uses.pop(entry.operation, self._last)
                self._turns.pop(entry.operation, None)

    def _apply_reply(self, operation: str, replied: ModelReplied) -> None:
        turn = self._turns.get(operation)
        self._uses.pop(operation, None)
        tokens = replied.usage.input_tokens + replied.usage.output_tokens
        # The turn records only the agent's first model, with its provider. If that model failed and another replied,
        # the provider is not known, so the reply is not used.
        if turn is not None and tokens and turn.engine.endswith(f":{replied.model}"):
            self._uses[operation] = ContextUse(agent=turn.agent, model=turn.engine, tokens=tokens)

    @property
    def largest(self) -> ContextUse | None:
        """The largest conversation that has not ended or, if all have ended, the one that ended last."""
        return max(self._uses.values(), key=lambda use: use.tokens, default=self._last)
