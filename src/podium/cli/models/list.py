"""`podium models list`: list the available models and the default one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import click

from ...engines.local_model_servers import find_servers, list_local_addresses
from ...runs.model_choice import MOST_NAMES, models_fields
from ...setup.settings import Settings
from ...system.locations import find_home_folder, find_repo
from ...values.byte_size import format_size
from ...values.plain_text import join_some
from ..terminal.command_options import json_option, repo_option
from ..terminal.text import align_columns, as_json, escape_for_terminal


@click.command("list")
@repo_option
@json_option
def models_list_command(repo: Path | None = None, is_json: bool = False) -> None:
    """List the default model, the providers, roles, local servers and coding agents, and the installed local models.

    Keys are never shown. Only this machine is searched for model servers, and a server is used only after you choose it
    with podium models use.
    """
    environ = os.environ
    settings = Settings.load(environ, repo or find_repo(Path.cwd(), home=find_home_folder()))
    servers = anyio.run(find_servers, list_local_addresses(settings.add_provider_addresses(environ)))
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
    lines += _format_section("Tested models", [_test_row(one) for one in found["tests"]])
    lines += _format_section(
        "Installed coding agents", [[name, place] for name, place in found["coding_agents"].items()]
    )
    lines += _format_section("Installed local models", [_local_model_row(one) for one in found["local_models"]])
    return escape_for_terminal("\n".join(lines))


def _format_section(title: str, rows: list[list[str]]) -> list[str]:
    return ["", title, *(f"  {'  '.join(row)}" for row in align_columns(rows))] if rows else ["", title, "  none"]


def _format_key_state(provider: Mapping[str, Any]) -> str:
    if provider["key_name"] is None:
        return "needs no key"
    return f"{provider['key_name']} is {'set' if provider['has_key'] else 'not set'}"


def _test_row(test: Mapping[str, Any]) -> list[str]:
    return [f"{test['provider']}:{test['model']}", test["url"], test["summary"]]


def _local_model_row(model: Mapping[str, Any]) -> list[str]:
    size, memory = format_size(model["size"]), format_size(model["memory"])
    return [model["name"], f"{size}, {memory} of memory", model["title"] or "-"]


def _server_row(server: Mapping[str, Any]) -> list[str]:
    names = join_some(server["models"], MOST_NAMES) or "no models"
    use = "confirmed" if server["is_confirmed"] else f"use it with: podium models use {server['url']}"
    return [server["provider"], server["url"], names, use]
