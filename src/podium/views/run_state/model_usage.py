"""Add up the usage of a run's own model calls, in total, over time and by model, and follow how large its prompts are.

The usage of the run's workers is recorded in their own runs.
"""

from __future__ import annotations

from msgspec import Struct, field

from ...core.edits import EDITS, Edits, Place
from ...values.event import (
    KINDS,
    CallCut,
    CallFailed,
    ContextCompacted,
    Entry,
    Event,
    ModelReplied,
    OperationEnded,
    OperationStarted,
    RunStarted,
    SessionRevived,
    TurnStarted,
)
from ...values.usage import NO_USAGE, Usage
from . import RunState

USAGE_KINDS = frozenset(KINDS[event] for event in (ModelReplied, CallFailed, CallCut))
"""The kinds of events that record the usage of the run's own model calls."""

_EVENTS = frozenset(
    {
        *(ModelReplied, CallFailed, CallCut, RunStarted, OperationStarted, OperationEnded),
        *(TurnStarted, ContextCompacted, SessionRevived),
    }
)
UNKNOWN_MODEL = "unknown"


def usage_of_event(event: Event) -> Usage:
    """Return the usage of the model call that an event reports, or no usage for other events."""
    return event.usage if isinstance(event, ModelReplied | CallFailed | CallCut) else NO_USAGE


class UsagePoint(Struct, frozen=True):
    """The usage of one model call."""

    at: float
    agent: str
    usage: Usage


class ContextUse(Struct, frozen=True, kw_only=True):
    """The size of an agent's conversation with a model, such as `openai:gpt-5-mini`, after its last call."""

    agent: str
    model: str
    tokens: int


class OperationTurn(Struct):
    """The agent of an operation and, until the operation ends, the engine of its last turn."""

    path: str
    agent: str
    engine: str = ""

    @property
    def place(self) -> Place:
        """The place in the state of a run."""
        return ("usage", "operations", self.path)


class RunUsage(RunState):
    """The usage of a run, built by applying the entries of its timeline in order."""

    PLACE = ("usage",)
    KINDS = tuple(sorted(KINDS[event] for event in _EVENTS))

    started_at: float = 0.0
    shared: int = 0
    """The number of entries that a fork shares with another run, after the first. Their usage is counted there."""
    total: Usage = NO_USAGE
    points: list[UsagePoint] = field(default_factory=list)
    models: dict[str, Usage] = field(default_factory=dict)
    model: str = ""
    """The model that replied last."""
    operations: dict[str, OperationTurn] = field(default_factory=dict)
    contexts: dict[str, ContextUse] = field(default_factory=dict)
    """The conversation of each operation that has not ended, keyed by path."""
    last_context: ContextUse | None = None

    def apply(self, entry: Entry, edits: Edits = EDITS) -> None:
        """Apply the next entry."""
        if type(entry.event) not in _EVENTS:
            return
        path = entry.operation
        match entry.event:
            case RunStarted(shared=shared):
                edits.set(self, shared=shared, started_at=entry.at)
            case OperationStarted(agent=agent):
                edits.put(self, "operations", path, OperationTurn(path, agent))
            case TurnStarted(agent=agent, engine=engine):
                edits.put(self, "operations", path, OperationTurn(path, agent, engine))
            case ModelReplied() as replied:
                self._count(entry, replied.usage, replied.model, edits)
                edits.set(self, model=replied.model)
                self._measure_context(path, replied, edits)
            case CallFailed(usage=usage, model=model) | CallCut(usage=usage, model=model):
                self._count(entry, usage, model, edits)
            case ContextCompacted() | SessionRevived():
                edits.drop(self, "contexts", path)
            case OperationEnded():
                if (last := self.contexts.get(path)) is not None:
                    edits.set(self, last_context=last)
                    edits.drop(self, "contexts", path)
                if path in self.operations:
                    edits.set(self.operations[path], engine="")

    def _count(self, entry: Entry, usage: Usage, model: str, edits: Edits) -> None:
        if usage == NO_USAGE or entry.seq <= 1 + self.shared:
            return
        agent = self.operations[entry.operation].agent if entry.operation in self.operations else ""
        name = model or UNKNOWN_MODEL
        edits.set(self, total=self.total + usage)
        edits.add(self, "points", UsagePoint(entry.at, agent, usage))
        edits.put(self, "models", name, self.models.get(name, NO_USAGE) + usage)

    def _measure_context(self, path: str, replied: ModelReplied, edits: Edits) -> None:
        turn = self.operations.get(path)
        tokens = replied.usage.input_tokens + replied.usage.output_tokens
        # The turn records only the agent's first model, with its provider. If that model failed and another replied,
        # the provider is not known, so the reply is not used.
        if turn is not None and tokens and turn.engine.endswith(f":{replied.model}"):
            use = ContextUse(agent=turn.agent, model=turn.engine, tokens=tokens)
            edits.put(self, "contexts", path, use)
        else:
            edits.drop(self, "contexts", path)

    @property
    def largest_context(self) -> ContextUse | None:
        """The largest conversation that has not ended or, if all have ended, the one that ended last."""
        return max(self.contexts.values(), key=lambda use: use.tokens, default=self.last_context)
