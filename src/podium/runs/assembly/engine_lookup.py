"""Find the models and the engine for an agent. Roles are resolved; agents without a model use the default model."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ...core.engine import Engine
from ...engines.engine_choice import Engines
from ...engines.model.providers import REHEARSAL
from ...files.model_role import resolve_models
from ...files.settings import Settings
from ...values.agent import Agent
from .agent_consent import require_agent_consent
from .agent_sandbox import choose_agent_sandbox
from .local_server_consent import require_consent


def list_models(settings: Settings, agent: Agent) -> tuple[str, ...]:
    """Return the models to try for an agent, in order. The result is empty if no model is configured."""
    name = ("" if agent.model == "inherit" else agent.model) or settings.model
    names = (name, *agent.fallback_models) if name else ()
    return tuple(dict.fromkeys(model for one in names for model in resolve_models(one, settings.models).models))


def list_limit_fallbacks(settings: Settings) -> tuple[str, ...]:
    """Return the models that agents use while their own models are blocked by a provider's limit."""
    named = (model for one in settings.limits.fallback_models for model in resolve_models(one, settings.models).models)
    return tuple(dict.fromkeys(named))


def find_engine(engines: Engines, settings: Settings, agent: Agent, environ: Mapping[str, str]) -> Engine:
    """Return the engine for an agent. Raise Mistake if the agent cannot use it."""
    models = list_models(settings, agent)
    defaults = resolve_models(settings.model, settings.models).models if settings.model else ("",)
    default = defaults[0]
    fallbacks = list_limit_fallbacks(settings)
    engine = engines.for_agent(
        agent,
        models,
        model=default,
        url=settings.base_url,
        limit_fallbacks=fallbacks,
        default_models=defaults if default else (),
        choose_sandbox=partial(choose_agent_sandbox, settings),
    )
    program = engines.find_program(agent)
    if program is not None and engine.name != REHEARSAL:
        require_agent_consent(agent, program, settings)
    if agent.source == "repo" and agent.engine == "model" and engine.name != REHEARSAL:
        require_consent(models, settings, environ, chooser=f"{agent.name}, an agent from the repository,")
    return engine
