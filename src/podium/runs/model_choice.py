"""List the available models, explain the default model, and choose a local server as the default."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from msgspec import Struct

from ..engines.local_model_servers import (
    ASK_SECONDS,
    LocalServer,
    find_servers,
    list_address_candidates,
    list_local_addresses,
)
from ..engines.model.providers import (
    REHEARSAL,
    parse_model,
    without_credentials,
)
from ..files.confirmed_model_servers import ConfirmedServer, save_confirmed_server
from ..files.model_role import resolve_models
from ..files.settings import Settings
from ..files.settings_files import USER_FILE
from ..system.locations import format_path
from ..values.errors import Mistake
from ..values.plain_text import join_some

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
    from ..files.settings_edit import set_model

    file = settings.home / USER_FILE
    name = f"{server.provider}:{server.model}"
    # Save the model first: a confirmed server without a configured model would itself change the default model.
    set_model(file, name)
    save_confirmed_server(settings.home, server)
    return f"agents that do not specify a model now use {name} at {server.url}; saved in {format_path(file)}"


class DefaultModel(Struct, frozen=True, kw_only=True):
    """The default models in order, the configured host, and why these models are used."""

    models: list[str]
    host: str
    because: str


def describe_default_model(settings: Settings, environ: Mapping[str, str]) -> DefaultModel:
    """Return the default models, and why they are used."""
    models = resolve_models(settings.model, settings.models).models if settings.model else (REHEARSAL,)
    at = urlsplit(settings.base_url).hostname or ""
    return DefaultModel(models=list(models), host=at, because=_explain_default_model(settings, environ))


def _explain_default_model(settings: Settings, environ: Mapping[str, str]) -> str:
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
