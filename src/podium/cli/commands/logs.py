"""`podium logs`: print or follow the timeline of a run."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import anyio
import click

from ...runs.run_lookup import derive_run_state, open_reader
from ...setup.settings import Settings
from ...store.follower import Follower
from ...values.event import Entry
from ..terminal.entry_text import format_entry, format_entry_json
from ..terminal.text import print_to_stderr


@click.command("logs")
@click.argument("run")
@click.option("-f", "--follow", "is_following", is_flag=True, help="Keep printing until the run ends or pauses.")
@click.option("--jsonl", "is_jsonl", is_flag=True, help="Print every entry in full, one JSON object per line.")
@click.option("--after", type=click.IntRange(min=0), default=0, metavar="SEQ", help="Skip entries up to SEQ.")
def logs_command(run: str, is_following: bool, is_jsonl: bool, after: int) -> None:
    """Print the timeline of RUN, one line per state change. Chunks of streamed text appear only with --jsonl."""
    store = Settings.load().store
    with open_reader(store) as reader:
        id = reader.find_run(run)
        if not is_following:
            for entry in reader.read_entries(id, after):
                print_entry(entry, is_jsonl=is_jsonl)
            return
        if derive_run_state(reader.read_summary(id)) == "resumable":
            print_to_stderr(f"run {id} is not running; waiting until it is resumed (Ctrl-C exits)")
    anyio.run(follow_timeline, store, id, after, is_jsonl)


async def follow_timeline(store: Path, run: str, after: int, is_jsonl: bool) -> None:
    """Print the entries so far and then each new one."""
    with Follower(store, run, after) as entries:
        async for entry in entries:
            print_entry(entry, is_jsonl=is_jsonl)


def print_entry(entry: Entry, *, is_jsonl: bool) -> None:
    """Print an entry, unless it is not shown as text."""
    if is_jsonl:
        click.echo(format_entry_json(entry))
    elif (said := format_entry(entry)) is not None:
        click.echo(f"{entry.seq:>5}  {datetime.fromtimestamp(entry.at):%H:%M:%S}  {said}")
