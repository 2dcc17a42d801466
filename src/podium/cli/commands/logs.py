"""`podium logs`: print or follow the timeline of a run."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from difflib import get_close_matches
from pathlib import Path

import anyio
import click

from ...runs.run_lookup import derive_run_state, open_reader
from ...setup.settings import Settings
from ...store.follower import Follower
from ...values.event import KINDS, Entry
from ...views.entry_filter import EntryFilter
from ..terminal.entry_text import format_entry, format_entry_json
from ..terminal.run_notices import RunNotices
from ..terminal.terminal_notifier import make_terminal_notifier
from ..terminal.text import print_to_stderr


@click.command("logs")
@click.argument("run")
@click.option("-f", "--follow", "is_following", is_flag=True, help="Keep printing until the run ends or pauses.")
@click.option("--jsonl", "is_jsonl", is_flag=True, help="Print every entry in full, one JSON object per line.")
@click.option("--after", type=click.IntRange(min=0), default=0, metavar="SEQ", help="Skip entries up to SEQ.")
@click.option("--agent", "agents", multiple=True, metavar="NAME", help="Show only entries of this agent.")
@click.option("--step", "steps", multiple=True, metavar="ID", help="Show only entries of this step of the plan.")
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Show only this kind of entry, e.g. turn_ended.")
@click.option("--since", default="", metavar="TIME", help="Show only entries since this time, e.g. 10m, 2h or 14:30.")
def logs_command(
    run: str,
    is_following: bool,
    is_jsonl: bool,
    after: int,
    agents: tuple[str, ...],
    steps: tuple[str, ...],
    kinds: tuple[str, ...],
    since: str,
) -> None:
    """Print the timeline of RUN, one line per state change. Chunks of streamed text appear only with --jsonl.

    The options that select entries can be combined. If one is given several times, each of its values is selected.
    """
    if unknown := [kind for kind in kinds if kind not in KINDS.values()]:
        similar = ", ".join(get_close_matches(unknown[0], KINDS.values())) or "none (docs/runs.md lists all kinds)"
        raise click.UsageError(f"--kind {unknown[0]!r} does not exist; similar kinds: {similar}")
    wanted = EntryFilter(agents=agents, steps=steps, kinds=kinds, since=parse_since(since, now=datetime.now()))
    settings = Settings.load()
    store = settings.store
    with open_reader(store) as reader:
        id = reader.find_run(run)
        if not is_following:
            for entry in filter(wanted.accepts, reader.read_entries(id, after)):
                print_entry(entry, is_jsonl=is_jsonl)
            return
        if derive_run_state(reader.read_summary(id)) == "resumable":
            print_to_stderr(f"run {id} is not running; waiting until it is resumed (Ctrl-C exits)")

    def print_wanted(entry: Entry) -> None:
        if wanted.accepts(entry):
            print_entry(entry, is_jsonl=is_jsonl)

    with make_terminal_notifier(settings.notify, is_shown=not is_jsonl) as terminal, RunNotices(terminal) as notices:
        anyio.run(follow_timeline, store, id, after, print_wanted, notices)


async def follow_timeline(
    store: Path, run: str, after: int, show: Callable[[Entry], None], notices: RunNotices
) -> None:
    """Show the existing entries and then each new entry. Notify the user about new entries."""
    begun = time.time()
    with Follower(store, run, after) as entries:
        async for entry in entries:
            show(entry)
            if entry.at < begun:
                notices.apply_past(entry)
            else:
                notices.handle_run_entry(entry)


def parse_since(text: str, *, now: datetime) -> float:
    """Parse a time such as `10m` (ago), `14:30` or `2026-05-01 14:30`. Return 0 if `text` is empty."""
    if not text:
        return 0.0
    try:
        if (age := _AGE.fullmatch(text)) is not None:
            return (now - timedelta(seconds=float(age[1]) * _UNITS[age[2]])).timestamp()
        if (clock := _CLOCK.fullmatch(text)) is not None:
            return now.replace(hour=int(clock[1]), minute=int(clock[2]), second=0, microsecond=0).timestamp()
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise click.UsageError(f"--since {text!r} is not a time; use 10m, 2h, 3d, 14:30 or 2026-05-01T14:30") from None


_AGE = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def print_entry(entry: Entry, *, is_jsonl: bool) -> None:
    """Print an entry as text or as JSON. An entry that has no text form is printed only as JSON."""
    if is_jsonl:
        click.echo(format_entry_json(entry))
    elif (said := format_entry(entry)) is not None:
        click.echo(f"{entry.seq:>5}  {datetime.fromtimestamp(entry.at):%H:%M:%S}  {said}")
