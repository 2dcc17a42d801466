"""Require the user's consent before an installed coding agent or a model server on this machine is used.

A coding agent uses the user's own login and can cost money, so neither a repository's files nor a model can choose it
unless the user has confirmed it, or has defined it in their own settings.

Any program can listen on a port. Therefore, neither a repository's files nor a model that delegates a task can have
prompts sent to a local server unless the user has approved the server: by confirming it, by naming it in their
own settings, environment or options, or by trusting the repository's setting that names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...engines.acp.agent_program import AgentProgram
from ...engines.model.providers import PROVIDERS, resolve_base_url
from ...files.confirmed_model_servers import load_confirmed
from ...files.settings import Settings
from ...values.agent import Agent
from ...values.errors import Mistake
from ...values.local_provider import find_local_provider, list_local_providers


def is_agreed(program: AgentProgram, settings: Settings) -> bool:
    """Return whether the user has agreed to the use of a coding agent."""
    return program.is_own or program.name in load_confirmed(settings.home).agents


def require_agent_consent(agent: Agent, program: AgentProgram, settings: Settings) -> None:
    """Raise Mistake if an agent that the user did not write uses a coding agent without the user's consent."""
    if agent.source not in ("user", "code") and not is_agreed(program, settings):
        raise Mistake(
            f"{agent.name} uses {program.name}, a coding agent that you have not confirmed; it uses your own login "
            f"and can cost money; to confirm it, run podium engines use {program.name}"
        )


def require_consent(models: Iterable[str], settings: Settings, environ: Mapping[str, str], *, chooser: str) -> None:
    """Raise Mistake if a model is on a local server that the user has not approved.

    The message begins with `chooser`, which names the agent or task that uses the model.
    """
    for model in models:
        provider = find_local_provider(model)
        if provider is not None and provider not in _list_agreed_providers(settings, environ):
            url = resolve_base_url(PROVIDERS[provider], settings.add_provider_addresses(environ))
            raise Mistake(
                f"{chooser} uses {model} on a local model server that you have not confirmed; "
                f"to confirm it, run podium models use {url}"
            )


def _list_agreed_providers(settings: Settings, environ: Mapping[str, str]) -> set[str]:
    named = [settings.model, *(name for role in settings.models.values() for name in (role.model, *role.fallbacks))]
    agreed = list_local_providers(named)
    agreed |= {name for name, limits in settings.providers.items() if limits.base_url is not None}
    for provider in PROVIDERS.values():
        if any(environ.get(name, "").strip() for name in (provider.url_name, provider.host_name or "")):
            agreed.add(provider.name)
    return agreed
