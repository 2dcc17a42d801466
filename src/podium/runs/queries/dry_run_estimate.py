"""Estimate the number of calls, the tokens and the cost of a real run from a dry run, by model."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from msgspec import Struct, structs

from ...engines.model.model_prices import calculate_cost
from ...engines.model.providers import REHEARSAL, parse_model
from ...files.settings import Settings
from ...store.reader import StoreReader
from ...values.agent import Agent
from ...values.errors import Mistake
from ...values.event import Entry, WorkerReturned
from ...values.usage import Usage
from ...views.run_state.model_usage import usage_of_event
from ...views.run_state.tree import OperationNode, RunView, map_member_names
from ..assembly.engine_lookup import list_models
from .team_states import read_team_states


class ModelEstimate(Struct, frozen=True, kw_only=True):
    """The estimated usage of a model. `model` is empty if none is configured; `usd` is None if the price is unknown."""

    model: str
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    usd: float | None = None


class RunEstimate(Struct, frozen=True, kw_only=True):
    """The estimate for a whole run, with the models in the order of their first calls.

    `usd` is the cost of the calls whose price is known, or None if no price is known.
    """

    calls: int
    input_tokens: int
    output_tokens: int
    usd: float | None
    models: tuple[ModelEstimate, ...]

    @classmethod
    def of(cls, models: Collection[ModelEstimate]) -> RunEstimate:
        """Return the sum of these estimates."""
        known = [one.usd for one in models if one.usd is not None]
        return cls(
            calls=sum(one.calls for one in models),
            input_tokens=sum(one.input_tokens for one in models),
            output_tokens=sum(one.output_tokens for one in models),
            usd=sum(known) if known else None,
            models=tuple(models),
        )

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


class RehearsedCall(NamedTuple):
    """A rehearsed call: its usage, and the agent that made it.

    If the team sets a model for the agent, `agent` has that model.
    """

    agent: Agent
    usage: Usage


def estimate_dry_run(reader: StoreReader, run: str, settings: Settings) -> RunEstimate:
    """Estimate the real run from its rehearsal; `settings` contains the settings of the real run."""
    by_model: dict[str, ModelEstimate] = {}
    for call in _list_rehearsed_calls(reader, run):
        if _is_always_rehearsed(settings, call.agent):
            continue
        model = _find_model(settings, call.agent)
        estimate = by_model.get(model) or ModelEstimate(model=model)
        by_model[model] = _add_call(estimate, call.usage.with_rehearsed())
    return RunEstimate.of(by_model.values())


class _RehearsedRun(NamedTuple):
    """The rehearsed calls of a run, and the runs of its workers that have returned."""

    calls: list[RehearsedCall]
    worker_runs: list[str]


def _list_rehearsed_calls(reader: StoreReader, run: str) -> list[RehearsedCall]:
    """Return the rehearsed calls of a run, and those of its workers if the workers have returned."""

    def read(id: str) -> _RehearsedRun:
        entries = reader.read_entries(id)
        workers = [entry.event.run for entry in entries if isinstance(entry.event, WorkerReturned)]
        return _RehearsedRun([*_iter_own_calls(entries)], workers)

    states = read_team_states(run, read, includes=reader.has_run)
    return [call for state in states.values() for call in state.calls]


def _iter_own_calls(entries: Iterable[Entry]) -> Iterator[RehearsedCall]:
    view = RunView()
    agents: dict[str, Agent] = {}
    for entry in entries:
        view.apply(entry)
        if not agents and view.started is not None:
            agents = {agent.name: agent for agent in view.started.agents}
        usage, node = usage_of_event(entry.event), view.find_node(entry.operation)
        if not usage.rehearsed_calls or node is None:
            continue
        agent = _find_agent(view, node, agents)
        if agent is not None:
            yield RehearsedCall(agent, usage)


def _find_agent(view: RunView, node: OperationNode, agents: dict[str, Agent]) -> Agent | None:
    """Return the agent of an operation, with the model that its team sets for it, if any."""
    parent = view.find_parent(node)
    if node.trigger not in ("member", "vote") or parent is None or parent.team is None:
        return agents.get(node.agent)
    members = dict(zip(map_member_names(parent.team), parent.team.members, strict=True))
    member = members.get(node.agent)
    agent = agents.get(node.agent if member is None else member.agent)
    if agent is None or member is None or not member.model:
        return agent
    return structs.replace(agent, model=member.model)


def _is_always_rehearsed(settings: Settings, agent: Agent) -> bool:
    """Return whether the agent itself specifies the rehearsal model or engine, so that it never calls a real model."""
    has_own_model = agent.model not in ("", "inherit")
    return agent.engine == REHEARSAL or (has_own_model and list_models(settings, agent)[0] == REHEARSAL)


def _find_model(settings: Settings, agent: Agent) -> str:
    """Return the first model of an agent as `provider:model`, or an empty string if none is configured."""
    name = next(iter(list_models(settings, agent)), "")
    if name in ("", REHEARSAL):
        return ""
    try:
        provider, model = parse_model(name)
    except Mistake:
        return name  # a real run rejects this name
    return f"{provider.name}:{model}"


def _add_call(estimate: ModelEstimate, usage: Usage) -> ModelEstimate:
    """Return the estimate with another call added.

    Each call is priced separately, because some models charge more per token for long prompts.
    """
    provider, _, model = estimate.model.partition(":")
    usd = calculate_cost(provider, model, usage) if model else None
    return structs.replace(
        estimate,
        calls=estimate.calls + usage.calls,
        input_tokens=estimate.input_tokens + usage.input_tokens,
        output_tokens=estimate.output_tokens + usage.output_tokens,
        usd=None if usd is None else (estimate.usd or 0.0) + usd,
    )
