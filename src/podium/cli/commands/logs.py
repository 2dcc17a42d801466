"""`podium logs`, `audit` and `verify`: print the timeline of a run and who decided what, and check it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import anyio
import click
from msgspec import Struct

from ...files.settings import Settings
from ...runs import find
from ...runs.queries.run_lookup import NO_RUNS, open_reader
from ...runs.run_notifications import RunNotices
from ...store.entry_index import EntryIndex
from ...store.follower import Follower
from ...store.reader import StoreReader
from ...store.run_integrity import describe_undetectable_loss
from ...store.store_check import find_damage
from ...values.errors import NoSuchRun, StoreCorrupt
from ...values.event import (
    KINDS,
    SCHEMA,
    ActionBegan,
    ActionRefused,
    Entry,
    PermissionAnswered,
    PermissionAsked,
    ToolAnswered,
    decode_entry,
)
from ...values.operation_path import parse_agent_name
from ...values.store_address import StoreAddress
from ...views.entry_filter import EntryFilter
from ..output import exit_codes
from ..output.entry_lines import format_entry, format_entry_json
from ..output.run_file import file_option, open_run
from ..output.terminal_notifier import make_terminal_notifier
from ..output.text import as_json, escape_for_terminal, print_to_stderr, truncate_line


class AuditedAction(Struct, kw_only=True):
    """An action that was allowed or refused. `by` is the person or rule that decided.

    The outcome of an allowed action is `unknown` until the tool answers.
    """

    seq: int
    at: float
    agent: str
    tool: str
    arguments: dict[str, Any]
    action: str
    decision: Literal["allowed", "refused"]
    by: str
    requests: list[str]
    answers: list[PermissionAnswered]
    channel: str
    outcome: Literal["unknown", "done", "failed"] | None


MOST_NEWEST = 100
"""The default number of entries to print if no run is given."""


@click.command("logs")
@click.argument("run", required=False, default="")
@file_option
@click.option("-f", "--follow", "is_following", is_flag=True, help="Keep printing until the run ends or pauses.")
@click.option("--jsonl", "is_jsonl", is_flag=True, help="Print every entry in full, one JSON object per line.")
@click.option("--after", type=click.IntRange(min=0), default=0, metavar="SEQ", help="Skip entries up to SEQ.")
@click.option("--agent", "agents", multiple=True, metavar="NAME", help="Show only entries from this agent.")
@click.option("--step", "steps", multiple=True, metavar="ID", help="Show only entries for this plan step.")
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Show only this kind of entry, e.g. turn_ended.")
@click.option("--since", default="", metavar="TIME", help="Show only entries since this time, e.g. 10m, 2h or 14:30.")
@click.option(
    "--last",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"Number of entries to show if RUN is not given; default: {MOST_NEWEST}.",
)
def logs_command(
    run: str,
    file: Path | None,
    is_following: bool,
    is_jsonl: bool,
    after: int,
    agents: tuple[str, ...],
    steps: tuple[str, ...],
    kinds: tuple[str, ...],
    since: str,
    last: int | None,
) -> None:
    """Print the timeline of RUN, one line per entry. Routine entries, such as what a tool has returned, appear only if
    --kind names their kind, and streamed text appears only with --jsonl.

    The options that select entries can be combined. If an option is given several times, an entry that matches any of
    its values is printed. Without RUN, the newest entries from all runs are printed, newest first.
    """
    _require_known_kinds(kinds)
    wanted = EntryFilter(agents=agents, steps=steps, kinds=kinds, since=_parse_since(since, now=datetime.now()))
    settings = Settings.load()
    if run and last is not None:
        raise click.UsageError("--last is for entries from all runs; with RUN, use --after SEQ or --since TIME")
    if file is not None and (is_following or last is not None):
        raise click.UsageError("--file cannot be combined with --follow or --last")
    is_about_all = not run and file is None
    if is_about_all and (is_following or after):
        raise click.UsageError(f"{'--follow' if is_following else '--after'} needs RUN; run podium ps to list the runs")
    if is_about_all:
        _print_newest_entries(settings.store, wanted, most=last or MOST_NEWEST, is_jsonl=is_jsonl)
    elif is_following:
        follow_run(settings, run, wanted, after=after, is_jsonl=is_jsonl)
    else:
        with open_run(run, file) as (reader, id):
            for entry in select_entries(reader, id, wanted, after=after):
                _print_entry(entry, wanted, is_jsonl=is_jsonl)


def _require_known_kinds(kinds: tuple[str, ...]) -> None:
    if unknown := [kind for kind in kinds if kind not in KINDS.values()]:
        similar = ", ".join(get_close_matches(unknown[0], KINDS.values())) or "none (docs/runs.md lists all kinds)"
        raise click.UsageError(f"unknown kind {unknown[0]!r} in --kind; similar kinds: {similar}")


def follow_run(settings: Settings, run: str, wanted: EntryFilter, *, after: int, is_jsonl: bool) -> None:
    """Print the entries that meet all criteria until the run ends or pauses. Send notifications about the run."""
    with open_reader(settings.store) as reader:
        id = find.resolve(reader, run).run
        if reader.read_summary(id).phase == "resumable":
            print_to_stderr(f"run {id} is not running; waiting until it is resumed (Ctrl-C exits)")

    def print_wanted(entry: Entry) -> None:
        if wanted.accepts(entry):
            _print_entry(entry, wanted, is_jsonl=is_jsonl)

    with make_terminal_notifier(settings.notify, is_shown=not is_jsonl) as terminal, RunNotices(terminal) as notices:
        anyio.run(_follow_timeline, settings.store, id, after, print_wanted, notices)


def select_entries(reader: StoreReader, run: str, wanted: EntryFilter, *, after: int) -> Iterable[Entry]:
    """Return the entries of a run that meet all criteria, without reading the others."""
    if wanted.is_empty:
        return reader.read_entries(run, after)
    with EntryIndex(reader.path) as index:
        return map(decode_entry, index.find_lines(run, wanted, after=after))


def _print_newest_entries(store: StoreAddress, wanted: EntryFilter, *, most: int, is_jsonl: bool) -> None:
    """Print the newest entries from all runs. Raise StoreCorrupt at the end if one of them is damaged."""
    if not store.exists():
        raise NoSuchRun(NO_RUNS)
    damage: StoreCorrupt | None = None
    left = most
    with EntryIndex(store) as index:
        for run, line in index.iter_newest_lines(wanted):
            try:
                text = _format_log_line(decode_entry(line, run=run), wanted, is_jsonl=is_jsonl, is_with_run=True)
            except StoreCorrupt as error:
                damage = damage or error
                continue
            if text is None:
                continue
            if not left:
                print_to_stderr(f"not shown: entries older than the newest {most}; use --last N to print more")
                break
            click.echo(text)
            left -= 1
    if damage is not None:
        raise damage


async def _follow_timeline(
    store: StoreAddress, run: str, after: int, show: Callable[[Entry], None], notices: RunNotices
) -> None:
    """Show the existing entries and then each new entry. Only new entries can trigger notifications."""
    begun = time.time()
    with Follower(store, run, after) as entries:
        async for entry in entries:
            show(entry)
            if entry.at < begun:
                notices.apply_past(entry)
            else:
                notices.handle_run_entry(entry)


def _parse_since(text: str, *, now: datetime) -> float:
    """Parse a time such as `10m` (ago), `14:30` or `2026-05-01 14:30`. Return 0 if `text` is empty.

    Raise UsageError if it is not a time.
    """
    if not text:
        return 0.0
    try:
        if (age := parse_age(text)) is not None:
            return (now - timedelta(seconds=age)).timestamp()
        if (clock := _CLOCK.fullmatch(text)) is not None:
            return now.replace(hour=int(clock[1]), minute=int(clock[2]), second=0, microsecond=0).timestamp()
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise click.UsageError(f"--since {text!r} is not a time; use 10m, 2h, 3d, 14:30 or 2026-05-01T14:30") from None


def parse_age(text: str) -> float | None:
    """Parse an age such as `10m` or `30d`, and return it in seconds. Return None if it is not an age."""
    age = _AGE.fullmatch(text)
    return None if age is None else float(age[1]) * _UNITS[age[2]]


_AGE = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _print_entry(entry: Entry, wanted: EntryFilter, *, is_jsonl: bool) -> None:
    """Print an entry as text or as JSON. An entry that has no text form is printed only as JSON."""
    if (text := _format_log_line(entry, wanted, is_jsonl=is_jsonl)) is not None:
        click.echo(text)


def _format_log_line(entry: Entry, wanted: EntryFilter, *, is_jsonl: bool, is_with_run: bool = False) -> str | None:
    """Return an entry as a log line, or None if it has no text form or is a detail whose kind nobody asked for.

    If `is_with_run` is true, a text line includes the run and the date.
    """
    if is_jsonl:
        return format_entry_json(entry)
    if (said := format_entry(entry, has_details=bool(wanted.kinds))) is None:
        return None
    at = datetime.fromtimestamp(entry.at)
    when = f"{entry.run}  {entry.seq:>5}  {at:%Y-%m-%d %H:%M:%S}" if is_with_run else f"{entry.seq:>5}  {at:%H:%M:%S}"
    return f"{when}  {said}"


@click.command("audit")
@click.argument("run")
@click.option("--json", "is_json", is_flag=True, help="Print the list as JSON.")
def audit_command(run: str, is_json: bool) -> None:
    """List every action in RUN that was allowed or denied, the person or rule that decided, and the outcome."""
    with open_reader(Settings.load().store) as reader:
        id = find.resolve(reader, run).run
        acts = list(_audit_actions(reader.read_entries(id)))
    if is_json:
        click.echo(as_json({"schema": SCHEMA, "run": id, "actions": acts}))
    elif not acts:
        print_to_stderr(f"run {id} has no allowed or denied actions")
    else:
        for act in acts:
            click.echo(escape_for_terminal(_format_action_line(act)))


def _format_action_line(act: AuditedAction) -> str:
    """Return an action as one line."""
    at = time.strftime("%H:%M:%S", time.localtime(act.at))
    what = truncate_line(" ".join(str(value) for value in act.arguments.values()), 80)
    via = f" via {act.channel}" if act.channel else ""
    came_to = f" -> {act.outcome}" if act.outcome else ""
    return f"{at}  {act.decision:8} {act.agent}: {act.tool} {what} ({act.by}){via}{came_to}"


@click.command("verify")
@click.argument("run", required=False, default="")
@file_option
@click.option("--json", "is_json", is_flag=True, help="Print the result as JSON.")
def verify_command(run: str, file: Path | None, is_json: bool) -> int:
    """Check that no entry of RUN was changed, removed, inserted or moved by accident. If one was, the exit code is 8.

    This finds accidental damage. It does not find a change by somebody who can write to the store: all hashes can be
    computed again. To find that too, keep the last hash elsewhere, or sign it, and compare it with the one printed
    here.

    Entries removed from the end leave no gap. Their removal is detected only if at least one of them was synced to disk
    as soon as it was written. Podium does this, for example, with the entry for the start of an action that cannot
    safely be repeated, and records such entries in a progress file next to the store. If this file is missing, a note
    says so.
    """
    with open_run(run, file) as (reader, id):
        rows = reader.read_rows(id)
        damage = find_damage(reader.path, id, rows)
        note = describe_undetectable_loss(reader.path, id, rows) if damage is None else ""
    last = rows[-1].hash.hex() if rows else ""
    if is_json:
        fields = {
            "schema": SCHEMA,
            "run": id,
            "entries": len(rows),
            "whole": damage is None,
            "break": damage,
            "note": note,
        }
        click.echo(as_json({**fields, "hash": last}))
    elif damage is None:
        click.echo(f"run {id} is intact: {len(rows):,} entries, last hash {last[:16]}")
        if note:
            click.echo(f"note: {note}")
        click.echo("this finds accidental damage; to find any change, keep or sign the last hash and compare it later")
    else:
        click.echo(f"run {id} has been altered or damaged: {escape_for_terminal(damage)}")
    return exit_codes.GOAL_MET if damage is None else exit_codes.INTEGRITY


def _audit_actions(entries: Iterable[Entry]) -> Iterator[AuditedAction]:
    """Yield each action that was allowed or refused. The outcome of an action can change after it is yielded."""
    asked: dict[str, list[PermissionAsked]] = {}
    answers: dict[str, PermissionAnswered] = {}
    open_acts: dict[str, AuditedAction] = {}
    for entry in entries:
        match entry.event:
            case PermissionAsked() as event:
                asked.setdefault(entry.scope, []).append(event)
            case PermissionAnswered() as event:
                answers.setdefault(event.id, event)
            case ActionBegan(action=action, allowed_by=by) | ActionRefused(action=action, reason=by):
                requests = [one.id for one in asked.get(entry.scope, [])]
                given = [answers[id] for id in requests if id in answers]
                is_allowed = isinstance(entry.event, ActionBegan)
                act = AuditedAction(
                    seq=entry.seq,
                    at=entry.at,
                    agent=parse_agent_name(entry.operation),
                    tool=action.tool,
                    arguments=action.arguments,
                    action=action.id,
                    decision="allowed" if is_allowed else "refused",
                    by=by,
                    requests=requests,
                    answers=given,
                    channel=given[-1].channel if given else "",
                    outcome="unknown" if is_allowed else None,
                )
                if is_allowed:
                    open_acts[entry.scope] = act
                yield act
            case ToolAnswered() as event if entry.scope in open_acts:
                open_acts.pop(entry.scope).outcome = "failed" if event.is_error else "done"
