"""`podium models`: list the available models, and choose a local server."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import click

from ...engines.local_model_servers import find_servers, list_local_addresses
from ...files.settings import Settings
from ...runs.model_choice import ask_server, choose_model, use_server
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
from ...values.local_provider import LOCAL_PROVIDERS
from ..lazy_group import LazyCommandGroup, require_no_group_options
from ..output.command_options import json_option, repo_option
from ..output.table import format_table
from ..output.text import align_columns, as_json, escape_for_terminal, print_to_stderr

NAMES = ("list", "use", "test", "add", "remove")


@click.group("models", cls=LazyCommandGroup, subcommands=NAMES, invoke_without_command=True)
@click.option("--use", "address", metavar="ADDRESS", help="The same as podium models use ADDRESS.")
@click.option("--model", help="With --use: the model to use, if the server has several.")
@repo_option
@json_option
@click.pass_context
def models_command(ctx: click.Context, address: str | None, model: str | None, repo: Path | None, is_json: bool) -> Any:
    """List the available models, choose a local server, test what a model can do, or add and remove local models.

    Without a subcommand, list the models, like podium models list.
    """
    if ctx.invoked_subcommand is not None:
        return require_no_group_options(ctx, use=address, model=model, repo=repo, json=is_json)
    if model and not address:
        raise click.UsageError("--model needs --use ADDRESS; give both")
    if address is not None:
        return ctx.invoke(models_use_command, address=address, model=model, repo=repo)

    return ctx.invoke(models_list_command, repo=repo, is_json=is_json)


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
    click.echo(as_json(encode_models(found)) if is_json else _format_models(found, now=time.time()))


def _format_models(found: ModelCatalogue, *, now: float) -> str:
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


@click.command("use")
@click.argument("address")
@click.option("--model", help="The model to use, if the server has several.")
@click.option(
    "--provider", type=click.Choice(sorted(LOCAL_PROVIDERS)), help="The kind of server; by default, Podium detects it."
)
@repo_option
def models_use_command(
    address: str, model: str | None = None, provider: str | None = None, repo: Path | None = None
) -> None:
    """Use the model server at ADDRESS from now on: a URL, a host with a port, or a provider such as ollama.

    The model given with --model, or the server's only model, becomes the default model in your own settings file.
    """
    settings = Settings.load(os.environ, repo or find_repo(Path.cwd(), home=find_home_folder()))
    environ = settings.add_provider_addresses(os.environ)
    server = anyio.run(ask_server, address, environ, provider or "")
    print_to_stderr(use_server(settings, choose_model(server, model)))
