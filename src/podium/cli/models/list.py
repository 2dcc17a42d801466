"""`podium models list`: list the available models and the default one."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import anyio
import click

from ...engines.local_model_servers import find_servers, list_local_addresses
from ...files.settings import Settings
from ...runs.queries.model_listing import (
    LOCAL_MODEL_COLUMNS,
    PROVIDER_COLUMNS,
    SERVER_COLUMNS,
    TEST_COLUMNS,
    ModelCatalogue,
    encode_models,
    load_models,
)
from ...system.locations import find_home_folder, find_repo
from ..terminal.command_options import json_option, repo_option
from ..terminal.table import format_table
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
    found = load_models(settings, environ, servers)
    click.echo(as_json(encode_models(found)) if is_json else format_models(found, now=time.time()))


def format_models(found: ModelCatalogue, *, now: float) -> str:
    """Return the models as text, in sections."""
    first, *rest = found.default.models
    place = f" at {found.default.host}" if found.default.host else ""
    after = f", then {', '.join(rest)}" if rest else ""
    lines = ["Default", f"  {first}{place}{after}, because {found.default.because}"]
    make_table = partial(format_table, now=now, has_headings=False)
    for title, rows in (
        ("Providers", make_table(found.providers, PROVIDER_COLUMNS)),
        ("Aliases", _format_pairs(found.aliases)),
        ("Roles", _format_pairs({name: ", then ".join(models) for name, models in found.roles.items()})),
        ("Local servers that respond", make_table(found.servers, SERVER_COLUMNS)),
        ("Tested models", make_table(found.tests, TEST_COLUMNS)),
        ("Installed coding agents", _format_pairs(found.coding_agents)),
        ("Installed local models", make_table(found.local_models, LOCAL_MODEL_COLUMNS)),
    ):
        lines += ["", title, *(f"  {row}" for row in rows or ["none"])]
    return escape_for_terminal("\n".join(lines))


def _format_pairs(pairs: Mapping[str, str]) -> list[str]:
    return ["  ".join(row) for row in align_columns([*pairs.items()])]
