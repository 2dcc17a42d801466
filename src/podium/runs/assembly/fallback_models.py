"""Choose fallback models for agents whose own models are not available when a run starts.

Agent files, the charters of squad members, and teams can list fallback models. A model that is merely missing from
the price list is still called first, because the list may be older than the model. If the provider rejects the model,
the model caller falls back in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec import structs

from ...engines.model.model_prices import describe_unknown_model
from ...engines.model.providers import REHEARSAL, parse_model, resolve_base_url
from ...values.agent import Agent
from ...values.errors import Mistake

SQUAD_FOLDERS = (".squad/", ".ai-team/")
TEAM_OPTION = "fallback_models"

FindModelError = Callable[[Agent], str]
"""Returns why an agent cannot use its models, or an empty string if it can."""


def apply_team_fallbacks(agents: Iterable[Agent]) -> tuple[Agent, ...]:
    """Return the agents. Agents without fallback models of their own get those that their team defines.

    If an agent belongs to several teams with fallback models, the first team's models are used.
    """
    given = tuple(agents)
    found: dict[str, tuple[str, ...]] = {}
    for lead in given:
        if lead.team is not None and (models := lead.team.options.get(TEAM_OPTION)):
            names = (lead.name, *(member.agent for member in lead.team.members), lead.team.evaluator or "")
            for name in names:
                found.setdefault(name, (models,) if isinstance(models, str) else tuple(models))
    return tuple(
        structs.replace(agent, fallback_models=found[agent.name])
        if agent.name in found and not agent.fallback_models
        else agent
        for agent in given
    )


def choose_available_models(
    agent: Agent, find_error: FindModelError, notices: list[str], *, default: str = ""
) -> Agent:
    """Return the agent with only the available models, and add a notice for each model that is not available.

    If the agent's own model is not available, the agent gets the first available fallback model. If there is none, it
    gets the default model if it is a squad's member, or if its own model is unknown and `default`, the default model,
    is available. Any other agent is returned unchanged, so that the run is rejected: a key that is not set is a mistake
    that the user can correct.
    """
    is_squads = (agent.path or "").startswith(SQUAD_FOLDERS)
    is_replaceable = is_squads or (bool(default) and _is_unknown(agent.model))
    if agent.engine != "model" or (not agent.fallback_models and not (is_replaceable and agent.model)):
        return agent

    def find_error_with(model: str, *fallbacks: str) -> str:
        return find_error(structs.replace(agent, model=model, fallback_models=fallbacks))

    model, fallbacks = agent.model, agent.fallback_models
    if error := find_error_with(model):
        available = [one for one in fallbacks if not find_error_with(one)]
        if not available and not is_squads and (not is_replaceable or find_error_with("")):
            return agent
        model = available[0] if available else ""
        notices.append(f"{agent.name} uses {model or 'the default model'}: {error}.")
    kept = []
    for one in fallbacks:
        if one != model and (error := find_error_with(model, one)):
            notices.append(f"{agent.name} cannot fall back to {one}: {error}.")
        elif one != model:
            kept.append(one)
    return structs.replace(agent, model=model, fallback_models=tuple(kept))


def _is_unknown(model: str) -> bool:
    """Return whether no provider of this name is known."""
    try:
        parse_model(model or REHEARSAL)
    except Mistake:
        return True
    return False


def describe_unlisted_model(name: str, environ: Mapping[str, str]) -> str:
    """Return a message if a model is not one of its provider's known models. Otherwise, return an empty string.

    The string is also empty if none of the provider's models are known, or if the provider has a custom address.
    """
    try:
        provider, model = parse_model(name)
    except Mistake:
        return ""
    if name == REHEARSAL or resolve_base_url(provider, environ) != provider.base_url:
        return ""
    return describe_unknown_model(provider.name, model) or ""
