"""`podium models test`: show what a model can do, by calling it."""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from pathlib import Path

import anyio
import click

from ...engines.model_probes import PROBES, ProbeResult
from ...files.settings import Settings
from ...runs.model_test import ModelTest, TargetModel, find_target, run_model_test
from ...system.locations import find_home_folder, find_repo
from ..terminal import exit_codes
from ..terminal.command_options import json_option, repo_option
from ..terminal.confirmation import confirm_action
from ..terminal.text import as_json, escape_for_terminal, format_money, print_to_stderr

WIDTH = max(map(len, PROBES))


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
        confirm_action(format_cost_question(target), is_agreed=is_agreed)
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


def format_cost_question(target: TargetModel) -> str:
    """Return the question that the user must confirm before a test that costs money."""
    cost = target.estimate_cost()
    if cost is None:
        return f"Testing {target.name} costs money, but the price is unknown. Test it?"
    return f"Testing {target.name} costs at most {format_money(cost)}. Test it?"


def format_result(result: ProbeResult) -> str:
    """Return the result of a probe as a line."""
    return escape_for_terminal(f"  {result.probe:{WIDTH}}  {result.verdict:7}  {result.text}")


def _run_test(target: TargetModel, settings: Settings, *, seconds: float, is_json: bool) -> ModelTest:
    progress = _ProgressLine()

    def print_result(result: ProbeResult) -> None:
        progress.clear()
        if not is_json:
            click.echo(format_result(result))

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
