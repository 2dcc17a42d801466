"""List the available models, explain the default model, and choose a local server as the default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from ..config.confirmed_model_servers import ConfirmedServer, load_confirmed_servers, save_confirmed_server
from ..config.model_role import resolve_models
from ..config.settings_files import USER_FILE
from ..config.tested_models import load_ability_records
from ..engines.local.model_folder import find_models_folder
from ..engines.local_model_servers import (
    ASK_SECONDS,
    LocalServer,
    find_coding_agents,
    find_servers,
    list_address_candidates,
    list_local_addresses,
)
from ..engines.model.providers import (
    ALIASES,
    LOCAL,
    PROVIDERS,
    REHEARSAL,
    parse_model,
    resolve_base_url,
    without_credentials,
)
from ..setup.settings import Settings
from ..system.locations import format_path
from ..values.errors import Mistake
from ..values.event import SCHEMA
from ..values.plain_text import join_some
from .ability_summary import ability_record_fields

MOST_NAMES = 8


async def ask_server(address: str, environ: Mapping[str, str], provider: str = "") -> LocalServer:
    """Find the model server at `address`, and return it with its models. Raise Mistake if no server responds there.

    `address` is a URL, a host with a port, or the name of a provider.
    """
    candidates = list_address_candidates(address, environ, provider)
    found = await find_servers(candidates, seconds=ASK_SECONDS)
    if found:
        return found[0]
    others = await find_servers(list_local_addresses(environ))
    there = ", ".join(f"{one.provider} at {one.url}" for one in others)
    hint = f"there is {there}" if there else "start the server first"
    is_name = candidates[0].provider == address.lower()
    what, where = (address, candidates[0].url) if is_name else ("model", address)
    raise Mistake(f"no {what} server responds at {without_credentials(where)}; {hint}")


def choose_model(server: LocalServer, model: str | None) -> ConfirmedServer:
    """Return the server with the chosen model. If `model` is None, the server's only model is chosen.

    Raise Mistake if the server does not have the chosen model, or if `model` is None and the server does not have
    exactly one model.
    """
    names = join_some(server.models, MOST_NAMES)
    if model is None and len(server.models) != 1:
        what = f"has {len(server.models)} models ({names}); choose one with --model" if names else "has no models yet"
        raise Mistake(f"{server.provider} at {server.url} {what}")
    if model is not None and model not in server.models:
        there = names or "none"
        raise Mistake(f"{server.provider} at {server.url} does not have the model {model!r}; available: {there}")
    return ConfirmedServer(url=server.url, provider=server.provider, model=model or server.models[0])


def use_server(settings: Settings, server: ConfirmedServer) -> str:
    """Record that a server may be used, make its model the default, and return a message for the user."""
    # Imported here to keep start-up fast: the YAML library is slow to import.
    from ..config.settings_edit import set_model

    file = settings.home / USER_FILE
    name = f"{server.provider}:{server.model}"
    # Save the model first: a confirmed server without a configured model would itself change the default model.
    set_model(file, name)
    save_confirmed_server(settings.home, server)
    return f"agents that do not specify a model now use {name} at {server.url}; saved in {format_path(file)}"


def models_fields(settings: Settings, environ: Mapping[str, str], servers: Sequence[LocalServer]) -> dict[str, Any]:
    """Return the available models as JSON fields."""
    moved = settings.add_provider_addresses(environ)
    agreed = {one.url for one in load_confirmed_servers(settings.home)}
    return {
        "schema": SCHEMA,
        "default": default_model_fields(settings, environ),
        "providers": [
            {
                "name": one.name,
                "url": without_credentials(resolve_base_url(one, moved)),
                "key_name": one.key_name,
                "has_key": bool(one.key_name and environ.get(one.key_name, "").strip()),
                "default_model": one.default_model,
            }
            for one in PROVIDERS.values()
            if one.name != LOCAL
        ],
        "aliases": ALIASES,
        "roles": {name: list(resolve_models(name, settings.models).models) for name in settings.models},
        "servers": [
            {
                "provider": one.provider,
                "url": one.url,
                "models": list(one.models),
                "is_confirmed": one.url in agreed,
            }
            for one in servers
        ],
        "coding_agents": find_coding_agents(environ),
        "tests": [ability_record_fields(record) for record in load_ability_records(settings.home)],
        "local_models": [
            {
                "name": f"{LOCAL}:{one.name}",
                "title": one.title,
                "licence": one.licence,
                "size": one.size,
                "memory": one.memory,
                "sha256": one.sha256,
            }
            for one in find_models_folder(environ, settings.home).load_models()
        ],
    }


def default_model_fields(settings: Settings, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the default models in order, the configured host, and why these models are used, as JSON fields."""
    models = resolve_models(settings.model, settings.models).models if settings.model else (REHEARSAL,)
    at = urlsplit(settings.base_url).hostname or ""
    return {"models": list(models), "host": at, "because": explain_default_model(settings, environ)}


def explain_default_model(settings: Settings, environ: Mapping[str, str]) -> str:
    """Return why the default model is used."""
    match settings.sources.get("model", "default"):
        case "user file":
            return f"{format_path(settings.home / USER_FILE)} sets it"
        case "repository file":
            return "the repository's podium.yaml sets it"
        case "confirmed server":
            return "you chose it when you confirmed its server"
        case "environment" if environ.get("PODIUM_MODEL"):
            return "the environment variable PODIUM_MODEL sets it"
        case "environment":
            provider = parse_model(settings.model)[0]
            names = (provider.key_name or "", provider.url_name)
            return f"{next(name for name in names if environ.get(name, '').strip())} is set"
        case "local model":
            return "it is installed on this machine"
        case "flag":
            return "it was chosen explicitly"
    return "no provider's key or address is set, no settings file sets a model, and PODIUM_MODEL is not set"
