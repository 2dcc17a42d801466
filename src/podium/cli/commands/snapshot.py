"""`podium snapshot`: take a snapshot of a run manually."""

from __future__ import annotations

import anyio
import click

from ...app import App
from ...files.settings import Settings
from ...runs import find
from ...runs.queries.run_lookup import open_reader
from ...runs.run_snapshot import take_run_snapshot
from ...values.errors import Mistake, RunHeld
from ...values.event import SnapshotTaken
from ..terminal.global_options import get_command_actor
from ..terminal.text import print_to_stderr


@click.command("snapshot")
@click.argument("run")
@click.option("--name", metavar="NAME", help="Name of the snapshot; by default manual-1, manual-2 and so on.")
def snapshot_command(run: str, name: str | None) -> None:
    """Take a snapshot of RUN, and print its name. podium fork RUN --at NAME starts a new run from it.

    A snapshot contains the position on the timeline, the current files, and the branches of workers that have ended.
    RUN must be paused or interrupted.
    """
    settings = Settings.load()
    with open_reader(settings.store) as reader:
        summary = reader.read_summary(find.resolve(reader, run).run)
    id = summary.id
    if summary.is_over:
        raise Mistake(
            f"run {id} has ended ({summary.phase}), so nothing can be added to its timeline; "
            f"use podium fork {id} --at SEQ to start a new run from any of its entries"
        )
    try:
        taken, why_not = anyio.run(_take_snapshot, settings, id, name)
    except RunHeld as error:
        raise Mistake(
            f"run {id} is in use by process {error.pid} on {error.host}, so its files may change at any time; "
            f"pause it first with: podium pause {id}"
        ) from error
    if why_not:
        print_to_stderr(f"the snapshot contains only the position on the timeline, not the files: {why_not}")
    click.echo(taken.name)


async def _take_snapshot(settings: Settings, run: str, name: str | None) -> tuple[SnapshotTaken, str]:
    async with App(settings) as app:
        return await take_run_snapshot(app.runs, run, by=get_command_actor(), name=name)
