"""`podium models`: list the available models and the default one, and choose a local server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import click

from ...engines.local_model_servers import find_servers, list_local_addresses
from ...runs.model_choice import MOST_NAMES, choose_server, models_fields, use_server
from ...setup.settings import Settings
from ...system.locations import find_home_folder, find_repo
from ..terminal.text import align_columns, as_json, escape_for_terminal, print_to_stderr


@click.command("models")
@click.option("--use", "address", metavar="ADDRESS", help="Use the local server at ADDRESS from now on.")
@click.option("--model", help="With --use: the model to use, if the server has several.")
@click.option("--repo", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Repository to look in.")
@click.option("--json", "is_json", is_flag=True, help="Print the list as JSON.")
def models_command(address: str | None, model: str | None, repo: Path | None, is_json: bool) -> None:
    """List the available models, and which one each agent uses: providers, roles, local servers, coding agents.

    Keys are never shown. Only this machine is searched for servers, and none is used until you choose
    it with --use, which sets its model as the default in your own settings file.
    """
    if model and not address:
        raise click.UsageError("--model needs --use ADDRESS; give both")
    environ = os.environ
    settings = Settings.load(environ, repo or find_repo(Path.cwd(), home=find_home_folder()))
    servers = anyio.run(find_servers, list_local_addresses(settings.add_provider_addresses(environ)))
    if address is not None:
        print_to_stderr(use_server(settings, choose_server(servers, address, model)))
        return
    found = models_fields(settings, environ, servers)
    click.echo(as_json(found) if is_json else format_models(found))


def format_models(found: Mapping[str, Any]) -> str:
    """Return the models as text, in sections."""
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
    lines += _format_section("Local servers that respond", [_server_row(one) for one in found["servers"]])
    lines += _format_section(
        "Installed coding agents", [[name, place] for name, place in found["coding_agents"].items()]
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
    use = "confirmed" if server["is_confirmed"] else f"use it with: podium models --use {server['url']}"
    return [server["provider"], server["url"], f"{', '.join(names[:MOST_NAMES]) or 'no models'}{more}", use]
