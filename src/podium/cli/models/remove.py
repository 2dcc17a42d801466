"""`podium models remove`: remove a local model."""

from __future__ import annotations

import os

import click

from ...engines.local.model_folder import find_models_folder
from ...runs.local_model_setup import remove_local_model
from ...system.locations import find_home_folder
from ...values.plain_text import format_size
from ..terminal.text import print_to_stderr


@click.command("remove")
@click.argument("name")
def models_remove_command(name: str) -> None:
    """Remove the local model NAME, or the files of its interrupted download.

    Runs that use the model fail at their next model call. If the model was added from a file, that file is kept.
    """
    name = name.removeprefix("local:")
    freed = remove_local_model(find_models_folder(os.environ, find_home_folder()), name, os.environ)
    print_to_stderr(f"removed {name} ({format_size(freed)})")
