"""`podium models`: list the available models, choose a local server, test a model, and add or remove local models.

Each subcommand has its own module, which is imported when the subcommand is called.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..lazy_group import LazyCommandGroup, require_no_group_options
from ..terminal.command_options import json_option, repo_option

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
        from ..models.use import models_use_command  # imported here for start-up time, like every subcommand

        return ctx.invoke(models_use_command, address=address, model=model, repo=repo)
    from ..models.list import models_list_command  # imported here for start-up time, like every subcommand

    return ctx.invoke(models_list_command, repo=repo, is_json=is_json)
