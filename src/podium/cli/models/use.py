"""`podium models use`: make a model on your own server the default."""

from __future__ import annotations

import os
from pathlib import Path

import anyio
import click

from ...files.settings import Settings
from ...runs.model_choice import ask_server, choose_model, use_server
from ...system.locations import find_home_folder, find_repo
from ...values.local_provider import LOCAL_PROVIDERS
from ..terminal.command_options import repo_option
from ..terminal.text import print_to_stderr


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
