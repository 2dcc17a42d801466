"""`podium group`: how runs are listed, and putting that in order.

Wherever a group can be named a run can be too, by the beginning of its id, except where only one
of them makes sense.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from ...runs.run_listing import group_fields
from ...runs.run_lookup import NO_RUNS
from ...setup.settings import Settings
from ...store.sqlite.group_rows import Groups
from ...values.errors import Mistake, NoSuchRun
from ...values.event import SCHEMA
from ...values.plain_text import format_count
from ...views.groups import Group, GroupedRun, GroupSection, build_sections
from ..terminal import exit_codes
from ..terminal.text import align_columns, as_json, escape_for_terminal, format_age, print_to_stderr, truncate_line
from .ps import LONGEST_HEADING, format_flags, format_group_origin

MOST_ENDING = 16
"""How many runs are ended at once; each takes some files."""


@click.group("group", invoke_without_command=True)
@click.pass_context
def group_command(ctx: click.Context) -> Any:
    """Put the list of runs in order: every repository and every team has a group there.

    A group is named by its name or its id (g2), a run by the beginning of its id.
    """
    return ctx.invoke(group_list_command) if ctx.invoked_subcommand is None else None


@group_command.command("list")
@click.option("--all", "is_all", is_flag=True, help="Also those that are archived.")
@click.option("--json", "is_json", is_flag=True, help="Print the list as JSON.")
def group_list_command(is_all: bool = False, is_json: bool = False) -> None:
    """List the groups, in the order in which podium ps shows them."""
    store = Settings.load().store
    parts: list[GroupSection] = []
    begun: dict[str, float] = {}
    if store.exists():
        with Groups(store) as groups:
            begun = groups.read_start_times()
            parts = build_sections(begun, groups.load_arrangement())
    listed = [part for part in parts if is_all or not part.group.is_archived]
    if is_json:
        found = [{**group_fields(part.group), "runs": len(part.runs)} for part in listed]
        click.echo(as_json({"schema": SCHEMA, "groups": found}))
    elif not parts:
        print_to_stderr(NO_RUNS)
    else:
        click.echo(format_groups_table(listed, begun, now=time.time()))
        if len(listed) < len(parts):
            print_to_stderr(f"left out: {len(parts) - len(listed)} archived; podium group list --all lists them")


@group_command.command("rename")
@click.argument("name")
@click.argument("new", required=False)
def group_rename_command(name: str, new: str | None) -> None:
    """Call the group or run NAME something else; without NEW as it was called at first."""
    with open_groups() as groups:
        thing = groups.load_arrangement().find_group_or_run(name)
        called = groups.rename(thing, new)
    print_to_stderr(
        f"{describe_target(thing)} is called {called!r} now"
        if called
        else f"{describe_target(thing)} has no name of its own now"
    )


@group_command.command("pin")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
def group_pin_command(names: tuple[str, ...]) -> None:
    """Have groups or runs stand before the others."""
    with open_groups() as groups:
        for thing in find_groups_and_runs(groups, names):
            groups.pin(thing, is_pinned=True)
            print_to_stderr(f"{describe_target(thing)} is pinned")


@group_command.command("unpin")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
def group_unpin_command(names: tuple[str, ...]) -> None:
    """Have groups or runs stand among the others again."""
    with open_groups() as groups:
        for thing in find_groups_and_runs(groups, names):
            groups.pin(thing, is_pinned=False)
            print_to_stderr(f"{describe_target(thing)} is no longer pinned")


@group_command.command("archive")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
def group_archive_command(names: tuple[str, ...]) -> None:
    """Leave groups or runs out of lists; --all lists them. A new run brings its group back."""
    with open_groups() as groups:
        for thing in find_groups_and_runs(groups, names):
            groups.archive(thing, is_archived=True)
            print_to_stderr(f"{describe_target(thing)} is archived")


@group_command.command("unarchive")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
def group_unarchive_command(names: tuple[str, ...]) -> None:
    """List groups or runs again that were archived."""
    with open_groups() as groups:
        for thing in find_groups_and_runs(groups, names):
            groups.archive(thing, is_archived=False)
            print_to_stderr(f"{describe_target(thing)} is no longer archived")


@group_command.command("move")
@click.argument("run")
@click.argument("group")
def group_move_command(run: str, group: str) -> None:
    """List RUN in GROUP from now on. The runs of a team stay together and cannot be moved."""
    with open_groups() as groups:
        arrangement = groups.load_arrangement()
        grouped_run, target = arrangement.find_run(run), arrangement.find_group(group)
        groups.move(grouped_run, target)
    print_to_stderr(f"{describe_target(grouped_run)} is in {describe_target(target)} now")


@group_command.command("order")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--newest", "is_newest", is_flag=True, help="Forget the order of the groups, or of the runs in a group.")
def group_order_command(names: tuple[str, ...], is_newest: bool) -> None:
    """Have these groups stand first, in this order; or these runs of one group, in that group.

    Those that are not named follow, the newest first. What is pinned stands before them all.
    """
    if not names and not is_newest:
        raise click.UsageError("name the groups or runs that come first, or give --newest")
    with open_groups() as groups:
        things = find_groups_and_runs(groups, names)
        named = [thing for thing in things if isinstance(thing, Group)]
        runs = [thing for thing in things if isinstance(thing, GroupedRun)]
        if named and runs:
            raise Mistake("groups and runs are ordered apart; name only groups, or only runs of one group")
        if is_newest:
            clear_order(groups, named, runs)
        elif runs:
            group = groups.load_arrangement().group_of(runs[0].run)
            assert group is not None
            groups.order_runs(group, runs)
        else:
            groups.order_groups(named)
    print_to_stderr("newest first" if is_newest else f"in this order: {', '.join(map(describe_target, things))}")


def clear_order(groups: Groups, named: Sequence[Group], runs: Sequence[GroupedRun]) -> None:
    """Let the newest come first again: the groups, or the runs in those that are named."""
    if runs:
        raise Mistake("--newest is about the runs of a whole group; name the group instead of the run")
    for group in named:
        groups.order_runs(group, ())
    if not named:
        groups.order_groups(())


@group_command.command("delete")
@click.argument("group")
@click.option("--yes", "is_agreed", is_flag=True, help="Do not ask.")
def group_delete_command(group: str, is_agreed: bool) -> int:
    """Delete GROUP. A team's group goes with its runs: they are stopped, and no list has them again.

    Their timelines stay: podium show reads them. The runs of another group go to the default one.
    """
    settings = Settings.load()
    with open_groups(settings) as groups:
        arrangement = groups.load_arrangement()
        target = arrangement.find_group(group)
        count = sum(grouped_run.group == target.id for grouped_run in arrangement.grouped_runs.values())
        if target.home.kind == "team":
            if not (is_agreed or confirm_delete(target, count, groups.list_unfinished(target))):
                print_to_stderr("nothing is deleted")
                return exit_codes.GOAL_NOT_MET
            # The group goes last: until then the same command can be given again, whatever happened between.
            end_group_runs(settings, groups, target)
        while groups.delete(target):
            end_group_runs(settings, groups, target)  # one has begun meanwhile
    what = "in no list any more" if target.home.kind == "team" else "in the default group now"
    print_to_stderr(
        f"{describe_target(target)} is deleted"
        + (f"; {format_count(count, 'run')} of it {'is' if count == 1 else 'are'} {what}" if count else "")
    )
    return exit_codes.GOAL_MET


def confirm_delete(group: Group, count: int, unfinished: Sequence[str]) -> bool:
    """Whether the person at the terminal wants this. Raises Mistake where nobody can be asked."""
    if not sys.stdin.isatty():
        raise Mistake(
            f"deleting {describe_target(group)} takes {format_count(count, 'run')} out of all lists, "
            "and nobody can be asked here; "
            "give --yes to do it"
        )
    stopped = f", of which {len(unfinished)} must be stopped first" if unfinished else ""
    question = f"Delete {describe_target(group)} with {format_count(count, 'run')}{stopped}? This cannot be undone."
    return click.confirm(escape_for_terminal(question), err=True)


def end_group_runs(settings: Settings, groups: Groups, group: Group) -> None:
    """End what has not ended of a group's runs."""
    if unfinished := groups.list_unfinished(group):
        end_runs_and_wait(settings, unfinished)


def end_runs_and_wait(settings: Settings, runs: Sequence[str]) -> None:
    """End runs, whoever works on them, and wait until they have ended."""
    # Here, because no other command of this group needs what it takes to work on runs.
    import anyio

    from ...app import App  # for start-up time: only deleting a group ends runs
    from ...runs.run_lookup import is_over, wait_for_end_or_pause
    from ...store.sqlite.reader import StoreReader
    from ...values.event import RunEnded

    async def end_run(app: App, run: str, limiter: anyio.CapacityLimiter) -> None:
        async with limiter:
            last: object = None
            # The process of a run may die before it hears of it; then it is ended from here.
            while not isinstance(last, RunEnded):
                try:
                    await app.stop(run)
                except Mistake:
                    with StoreReader(settings.store) as reader:
                        if not is_over(reader.read_summary(run)):
                            raise
                last = await wait_for_end_or_pause(settings.store, run)
            print_to_stderr(f"run {run} has ended ({last.outcome})")

    async def end_concurrently() -> None:
        limiter = anyio.CapacityLimiter(MOST_ENDING)
        async with App(settings) as app, anyio.create_task_group() as group:
            for run in runs:
                group.start_soon(end_run, app, run, limiter)

    print_to_stderr(f"{format_count(len(runs), 'run')} asked to stop")
    anyio.run(end_concurrently)


def format_groups_table(parts: Sequence[GroupSection], begun: dict[str, float], *, now: float) -> str:
    """The groups in columns."""
    rows = [["GROUP", "NAME", "RUNS", "NEWEST", ""]]
    for group, runs in parts:
        newest = format_age(now - max(begun[run] for run in runs)) if runs else "-"
        name = f"{format_flags(group)}{truncate_line(escape_for_terminal(group.name), LONGEST_HEADING)}"
        rows.append([group.tag, name, str(len(runs)), newest, escape_for_terminal(format_group_origin(group))])
    return "\n".join("  ".join(row).rstrip() for row in align_columns(rows))


@contextmanager
def open_groups(settings: Settings | None = None) -> Iterator[Groups]:
    """The groups of the store; raises NoSuchRun where there is none yet."""
    store = (settings or Settings.load()).store
    if not store.exists():
        raise NoSuchRun(NO_RUNS)
    with Groups(store) as groups:
        yield groups


def find_groups_and_runs(groups: Groups, names: Sequence[str]) -> list[Group | GroupedRun]:
    """All that is named, each once; nothing is done where one of them is not there. Raises Mistake."""
    arrangement = groups.load_arrangement()
    things: list[Group | GroupedRun] = []
    for name in names:
        if (thing := arrangement.find_group_or_run(name)) not in things:
            things.append(thing)
    return things


def describe_target(thing: Group | GroupedRun) -> str:
    """A group or a run, as sentences speak of it."""
    return f"run {thing.run}" if isinstance(thing, GroupedRun) else f"group {thing.name!r} ({thing.tag})"
