"""`podium models`: what can think here, and what agents think with that name nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import click

from ...config.confirmed_servers import ConfirmedServer, load_confirmed_servers, save_confirmed_server
from ...config.model_role import resolve_models
from ...config.settings_files import USER_FILE, format_path
from ...engines.local_servers import LocalServer, find_coding_agents, find_servers, list_local_addresses
from ...engines.model.providers import ALIASES, PROVIDERS, REHEARSAL, parse_model, resolve_base_url, without_credentials
from ...setup.settings import Settings, find_home_folder
from ...system.locations import find_repo
from ...values.errors import Mistake
from ...values.event import SCHEMA
from ..terminal.text import align_columns, as_json, escape_for_terminal, print_to_stderr

MOST_NAMES = 8


@click.command("models")
@click.option("--use", "address", metavar="ADDRESS", help="Agree to use the local server at ADDRESS, from now on.")
@click.option("--model", help="With --use: which of the server's models, where it has several.")
@click.option(
    "--repo", type=click.Path(exists=True, file_okay=False, path_type=Path), help="The repository to look in."
)
@click.option("--json", "is_json", is_flag=True, help="Print the list as JSON.")
def models_command(address: str | None, model: str | None, repo: Path | None, is_json: bool) -> None:
    """List what can think here: providers, roles, local servers and coding agents. Keys are never shown.

    Servers are looked for on this machine only, and none is used before you agree with --use. That
    makes its model the one that agents think with, in your own settings file.
    """
    if model and not address:
        raise click.UsageError("--model goes with --use ADDRESS")
    environ = os.environ
    settings = Settings.load(environ, repo or find_repo(Path.cwd(), home=find_home_folder()))
    servers = anyio.run(find_servers, list_local_addresses(settings.add_provider_addresses(environ)))
    if address is not None:
        print_to_stderr(use_server(settings, choose_server(servers, address, model)))
        return
    found = models_fields(settings, environ, servers)
    click.echo(as_json(found) if is_json else format_models(found))


def choose_server(servers: Sequence[LocalServer], address: str, model: str | None) -> ConfirmedServer:
    """The server that answers at an address, with the model that is meant. Raises Mistake."""
    server = next((server for server in servers if address in _server_names(server)), None)
    if server is None:
        there = ", ".join(f"{one.provider} at {one.url}" for one in servers) or "none does; start it first"
        raise Mistake(f"no local server answers at {without_credentials(address)}; of those looked for: {there}")
    names = ", ".join(server.models[:MOST_NAMES])
    if model is None and len(server.models) != 1:
        what = f"has {len(server.models)} models ({names}); name one with --model" if names else "has no model yet"
        raise Mistake(f"{server.provider} at {server.url} {what}")
    if model is not None and model not in server.models:
        raise Mistake(f"{server.provider} at {server.url} has no model {model!r}; it has {names or 'none'}")
    return ConfirmedServer(url=server.url, provider=server.provider, model=model or server.models[0])


def use_server(settings: Settings, server: ConfirmedServer) -> str:
    """Remember that a server may be used, and make its model the person's; what was done."""
    from ...config.settings_edit import set_model  # what reads YAML takes longer to import than the rest of this

    file = settings.home / USER_FILE
    name = f"{server.provider}:{server.model}"
    # The model first: an address that is agreed to without being named would change what is thought with.
    set_model(file, name)
    save_confirmed_server(settings.home, server)
    return f"agents that name no model think with {name} at {server.url} from now on; {format_path(file)} says so"


def models_fields(settings: Settings, environ: Mapping[str, str], servers: Sequence[LocalServer]) -> dict[str, Any]:
    """All there is to say, for programs."""
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
    }


def default_model_fields(settings: Settings, environ: Mapping[str, str]) -> dict[str, Any]:
    """What agents think with that name nothing: the models in order, where the first is, and why."""
    models = resolve_models(settings.model, settings.models).models if settings.model else (REHEARSAL,)
    at = urlsplit(settings.base_url).hostname or ""
    return {"models": list(models), "host": at, "because": explain_default_model(settings, environ)}


def explain_default_model(settings: Settings, environ: Mapping[str, str]) -> str:
    """Why agents think with that."""
    match settings.sources.get("model", "default"):
        case "user file":
            return f"{format_path(settings.home / USER_FILE)} says so"
        case "repository file":
            return "the repository's podium.yaml says so"
        case "confirmed server":
            return "you agreed to use that server"
        case "environment" if environ.get("PODIUM_MODEL"):
            return "PODIUM_MODEL is set"
        case "environment":
            provider = parse_model(settings.model)[0]
            names = (provider.key_name or "", provider.url_name)
            return f"{next(name for name in names if environ.get(name, '').strip())} is set"
        case "flag":
            return "it was asked for"
    return "no provider's key or address is set, no settings file names a model, and no PODIUM_MODEL"


def format_models(found: Mapping[str, Any]) -> str:
    """The same for people."""
    default = found["default"]
    first, *rest = default["models"]
    place = f" at {default['host']}" if default["host"] else ""
    after = f", then {', '.join(rest)}" if rest else ""
    lines = ["Default", f"  {first}{place}{after}, because {default['because']}"]
    lines += _format_section(
        "Providers",
        [[one["name"], _format_key_state(one), one["default_model"] or "-", one["url"]] for one in found["providers"]],
    )
    lines += _format_section("Aliases", [[name, model] for name, model in found["aliases"].items()])
    lines += _format_section("Roles", [[name, ", then ".join(models)] for name, models in found["roles"].items()])
    lines += _format_section("Local servers that answer", [_server_row(one) for one in found["servers"]])
    lines += _format_section(
        "Coding agents installed", [[name, place] for name, place in found["coding_agents"].items()]
    )
    return escape_for_terminal("\n".join(lines))


def _format_section(title: str, rows: list[list[str]]) -> list[str]:
    return ["", title, *(f"  {'  '.join(row)}" for row in align_columns(rows))] if rows else ["", title, "  none"]


def _format_key_state(provider: Mapping[str, Any]) -> str:
    if provider["key_name"] is None:
        return "needs no key"
    return f"{provider['key_name']} is {'set' if provider['has_key'] else 'not set'}"


def _server_row(server: Mapping[str, Any]) -> list[str]:
    names = server["models"]
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    use = "agreed to" if server["is_confirmed"] else f"use it with: podium models --use {server['url']}"
    return [server["provider"], server["url"], f"{', '.join(names[:MOST_NAMES]) or 'no models'}{more}", use]


def _server_names(server: LocalServer) -> set[str]:
    """How a person may name a server."""
    return {server.url, server.url.removesuffix("/v1"), f"{server.url}/", urlsplit(server.url).netloc, server.provider}
