"""Find the models, the engine and the options of calls for an agent.

Roles are resolved; agents without a model use the default model.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from ...core.engine import Engine
from ...engines.engine_choice import CallOptions, Engines, ModelAddress
from ...engines.local_model_servers import is_loopback
from ...engines.model.model_wire import DEFAULT_MAX_WAIT
from ...engines.model.providers import LOCAL, REHEARSAL, without_credentials
from ...files.model_role import resolve_models
from ...files.settings import Settings
from ...files.settings_document import ProviderLimits
from ...files.tested_models import find_ability_record
from ...values.agent import Agent
from ...values.model_abilities import UNTESTED
from ...values.usage import LOCAL_CALL_LIMITS, NO_CALL_LIMITS, CallLimits
from .agent_sandbox import choose_agent_sandbox
from .engine_consent import require_agent_consent, require_consent

LOCAL_CONCURRENT = 1
"""The maximum number of concurrent calls to a server on this machine, unless a test shows that it can answer more."""


def list_models(settings: Settings, agent: Agent) -> tuple[str, ...]:
    """Return the models to try for an agent, in order. The result is empty if no model is configured."""
    name = ("" if agent.model == "inherit" else agent.model) or settings.model
    names = (name, *agent.fallback_models) if name else ()
    return tuple(dict.fromkeys(model for one in names for model in resolve_models(one, settings.models).models))


def _list_limit_fallbacks(settings: Settings) -> tuple[str, ...]:
    """Return the models that agents use while their own models are blocked by a provider's limit."""
    named = (model for one in settings.limits.fallback_models for model in resolve_models(one, settings.models).models)
    return tuple(dict.fromkeys(named))


def find_engine(engines: Engines, settings: Settings, agent: Agent, environ: Mapping[str, str]) -> Engine:
    """Return the engine for an agent. Raise Mistake if the agent cannot use it."""
    models = list_models(settings, agent)
    defaults = resolve_models(settings.model, settings.models).models if settings.model else ("",)
    default = defaults[0]
    fallbacks = _list_limit_fallbacks(settings)
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


def find_call_options(settings: Settings, address: ModelAddress) -> CallOptions:
    """Return the options for calls to a model.

    Settings take precedence over test results, and test results over defaults. By default, calls to a server
    on this machine that needs no key are made one at a time, with longer time limits.
    """
    set_limits = settings.providers.get(address.provider.name, ProviderLimits())
    record = find_ability_record(settings.home, without_credentials(address.url), address.model)
    abilities = UNTESTED if record is None else record.abilities
    is_local = address.provider.name == LOCAL or (address.provider.key_name is None and is_loopback(address.url))
    default_limits = LOCAL_CALL_LIMITS if is_local else NO_CALL_LIMITS
    default_concurrent = (abilities.concurrent or LOCAL_CONCURRENT) if is_local else None
    return CallOptions(
        abilities=abilities,
        limits=CallLimits(
            first_token=set_limits.first_token_timeout or default_limits.first_token,
            silence=set_limits.silence_timeout or default_limits.silence,
        ),
        tool_calls=set_limits.tool_calls or "auto",
        max_tokens=set_limits.max_tokens,
        requests_per_minute=set_limits.requests_per_minute,
        tokens_per_minute=set_limits.tokens_per_minute,
        concurrent=set_limits.concurrent or default_concurrent,
        max_wait=settings.limits.max_wait or DEFAULT_MAX_WAIT,
    )
