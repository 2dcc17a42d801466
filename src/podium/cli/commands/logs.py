"""`podium logs`: a run's timeline, as it is or as it grows."""

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
@click.option("-f", "--follow", "is_following", is_flag=True, help="Go on printing until the run ends or pauses.")
@click.option("--jsonl", "is_jsonl", is_flag=True, help="Print every entry in full, as a JSON object a line.")
@click.option("--after", type=click.IntRange(min=0), default=0, metavar="SEQ", help="Leave out entries up to this one.")
def logs_command(run: str, is_following: bool, is_jsonl: bool, after: int) -> None:
    """Print the timeline of RUN, one line for each change of state; pieces of streamed text only with --jsonl."""
    store = Settings.load().store
    with open_reader(store) as reader:
        id = reader.find_run(run)
        if not is_following:
            for entry in reader.read_entries(id, after):
                print_entry(entry, is_jsonl=is_jsonl)
            return
        if derive_run_state(reader.read_summary(id)) == "resumable":
            print_to_stderr(f"nobody works on run {id} now; this waits for somebody to resume it (Ctrl-C leaves)")
    anyio.run(follow_timeline, store, id, after, is_jsonl)


async def follow_timeline(store: Path, run: str, after: int, is_jsonl: bool) -> None:
    """Print what there is and what comes."""
    with Follower(store, run, after) as entries:
        async for entry in entries:
            print_entry(entry, is_jsonl=is_jsonl)


def print_entry(entry: Entry, *, is_jsonl: bool) -> None:
    """Print an entry, if it is one to print."""
    if is_jsonl:
        click.echo(format_entry_json(entry))
    elif (said := format_entry(entry)) is not None:
        click.echo(f"{entry.seq:>5}  {datetime.fromtimestamp(entry.at):%H:%M:%S}  {said}")
