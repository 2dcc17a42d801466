"""`podium status`: show open requests, active agents and finished runs."""

from __future__ import annotations

import shutil
import time

import click

from ...files.settings import Settings
from ...runs.queries.overview import build_overview_document, load_overview
from ..output.overview_text import format_overview
from ..output.terminal_input import is_attended
from ..output.text import as_json


@click.command("status")
@click.option(
    "--watch",
    "is_watching",
    is_flag=True,
    help="Keep the overview open and refresh it continuously; you can answer requests in it.",
)
@click.option("--json", "is_json", is_flag=True, help="Print the overview as JSON.")
def status_command(is_watching: bool, is_json: bool) -> None:
    """Show the requests that need you, the active agents and the finished runs in the store.

    With --watch, the overview stays open and is refreshed continuously. The available keys are shown at the bottom.
    """
    settings = Settings.load()
    if is_watching and not is_json:
        if not is_attended():
            raise click.UsageError("--watch needs a terminal; use podium status or podium status --json")
        from ..output.status_screen import StatusScreen  # imported here to keep start-up fast

        StatusScreen(settings.store).run()
        return
    now = time.time()
    overview = load_overview(settings.store, now=now)
    if is_json:
        click.echo(as_json(build_overview_document(overview)))
        return
    for line in format_overview(overview, now=now, width=shutil.get_terminal_size().columns):
        click.echo(line)
