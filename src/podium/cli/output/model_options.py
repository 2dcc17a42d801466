"""Choose the model that the options `--provider` and `--model` specify."""

from __future__ import annotations

from collections.abc import Mapping

import anyio
import click

from ...engines.model.providers import Provider, describe_stopped_server, find_provider, resolve_base_url
from ...files.settings import Settings
from ...values.errors import Mistake


def choose_model(provider: str | None, model: str | None, settings: Settings, environ: Mapping[str, str]) -> str | None:
    """Return the model that the options specify, or None. If a provider is given, return `provider:model`.

    If only a provider is given, use its default model or, if it has none, the only model on its server.
    Raise UsageError if `model` is blank, and Mistake if the provider is unknown or its server does not
    have exactly one model.
    """
    if model is not None and not model.strip():
        raise click.UsageError("--model is empty; specify a model, or omit the option")
    if provider is None:
        return model
    if model is not None:
        return model if model.startswith(f"{provider}:") else f"{provider}:{model}"
    found = find_provider(provider)
    return f"{found.name}:{found.default_model or _find_only_model(found, settings.add_provider_addresses(environ))}"


def _find_only_model(provider: Provider, environ: Mapping[str, str]) -> str:
    """Return the only model on a provider's server. Raise Mistake unless there is exactly one model."""
    # imported here for start-up time: most commands query no server
    from ...engines.local_model_servers import ServerAddress, find_servers

    url = resolve_base_url(provider, environ)
    servers = anyio.run(find_servers, [ServerAddress(provider=provider.name, url=url)])
    if not servers:
        raise Mistake(describe_stopped_server(provider.name, url))
    [server] = servers
    if len(server.models) == 1:
        return server.models[0]
    if not server.models:
        raise Mistake(f"{provider.server_name or provider.name} at {server.url} has no models; install one")
    raise Mistake(
        f"{provider.server_name or provider.name} has {len(server.models)} models; add --model with one of: "
        f"{', '.join(server.models)}"
    )
