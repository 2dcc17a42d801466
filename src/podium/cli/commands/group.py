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

from ...runs.run_lookup import NO_RUNS
from ...setup.settings import Settings
from ...store.sqlite.group_rows import Groups
from ...values.errors import Mistake, NoSuchRun
from ...values.event import SCHEMA
from ...views.groups import Group, Placement, Section, sections
from ..terminal import exit_codes
from ..terminal.measure import ago, aligned, counted, cut
from ..terminal.say import say
from ..terminal.text import as_json, visible
from .ps import LONGEST_HEADING, group_fields, marks, origin

MOST_ENDING = 16
"""How many runs are ended at once; each takes some files."""


@click.group("group", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> Any:
    """Put the list of runs in order: every repository and every team has a group there.

    A group is named by its name or its id (g2), a run by the beginning of its id.
    """
    return ctx.invoke(list_groups) if ctx.invoked_subcommand is None else None


@command.command("list")
@click.option("--all", "is_all", is_flag=True, help="Also those that are archived.")
@click.option("--json", "is_json", is_flag=True, help="Print the list as JSON.")
def list_groups(is_all: bool = False, is_json: bool = False) -> None:
    """List the groups, in the order in which podium ps shows them."""
    store = Settings.load().store
    parts: list[Section] = []
    begun: dict[str, float] = {}
    if store.exists():
        with Groups(store) as groups:
            begun = groups.begun()
            parts = sections(begun, groups.arranged())
    listed = [part for part in parts if is_all or not part.group.is_archived]
    if is_json:
        found = [{**group_fields(part.group), "runs": len(part.runs)} for part in listed]
        click.echo(as_json({"schema": SCHEMA, "groups": found}))
    elif not parts:
        say(NO_RUNS)
    else:
        click.echo(table(listed, begun, now=time.time()))
        if len(listed) < len(parts):
            say(f"left out: {len(parts) - len(listed)} archived; podium group list --all lists them")


@command.command("rename")
@click.argument("name")
@click.argument("new", required=False)
def rename(name: str, new: str | None) -> None:
    """Call the group or run NAME something else; without NEW as it was called at first."""
    with arranging() as groups:
        thing = groups.arranged().find(name)
        called = groups.rename(thing, new)
    say(f"{told(thing)} is called {called!r} now" if called else f"{told(thing)} has no name of its own now")


@command.command("pin")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
def pin(names: tuple[str, ...]) -> None:
    """Have groups or runs stand before the others."""
    with arranging() as groups:
        for thing in found(groups, names):
            groups.pin(thing, is_pinned=True)
            say(f"{told(thing)} is pinned")


@command.command("unpin")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
def unpin(names: tuple[str, ...]) -> None:
    """Have groups or runs stand among the others again."""
    with arranging() as groups:
        for thing in found(groups, names):
            groups.pin(thing, is_pinned=False)
            say(f"{told(thing)} is no longer pinned")


@command.command("archive")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
def archive(names: tuple[str, ...]) -> None:
    """Leave groups or runs out of lists; --all lists them. A new run brings its group back."""
    with arranging() as groups:
        for thing in found(groups, names):
            groups.archive(thing, is_archived=True)
            say(f"{told(thing)} is archived")


@command.command("unarchive")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
def unarchive(names: tuple[str, ...]) -> None:
    """List groups or runs again that were archived."""
    with arranging() as groups:
        for thing in found(groups, names):
            groups.archive(thing, is_archived=False)
            say(f"{told(thing)} is no longer archived")


@command.command("move")
@click.argument("run")
@click.argument("group")
def move(run: str, group: str) -> None:
    """List RUN in GROUP from now on. The runs of a team stay together and cannot be moved."""
    with arranging() as groups:
        arrangement = groups.arranged()
        placement, target = arrangement.run(run), arrangement.group(group)
        groups.move(placement, target)
    say(f"{told(placement)} is in {told(target)} now")


@command.command("order")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--newest", "is_newest", is_flag=True, help="Forget the order of the groups, or of the runs in a group.")
def order(names: tuple[str, ...], is_newest: bool) -> None:
    """Have these groups stand first, in this order; or these runs of one group, in that group.

    Those that are not named follow, the newest first. What is pinned stands before them all.
    """
    if not names and not is_newest:
        raise click.UsageError("name the groups or runs that come first, or give --newest")
    with arranging() as groups:
        things = found(groups, names)
        named = [thing for thing in things if isinstance(thing, Group)]
        runs = [thing for thing in things if isinstance(thing, Placement)]
        if named and runs:
            raise Mistake("groups and runs are ordered apart; name only groups, or only runs of one group")
        if is_newest:
            forget_order(groups, named, runs)
        elif runs:
            group = groups.arranged().group_of(runs[0].run)
            assert group is not None
            groups.order_runs(group, runs)
        else:
            groups.order_groups(named)
    say("newest first" if is_newest else f"in this order: {', '.join(map(told, things))}")


def forget_order(groups: Groups, named: Sequence[Group], runs: Sequence[Placement]) -> None:
    """Let the newest come first again: the groups, or the runs in those that are named."""
    if runs:
        raise Mistake("--newest is about the runs of a whole group; name the group instead of the run")
    for group in named:
        groups.order_runs(group, ())
    if not named:
        groups.order_groups(())


@command.command("delete")
@click.argument("group")
@click.option("--yes", "is_agreed", is_flag=True, help="Do not ask.")
def delete(group: str, is_agreed: bool) -> int:
    """Delete GROUP. A team's group goes with its runs: they are stopped, and no list has them again.

    Their timelines stay: podium show reads them. The runs of another group go to the default one.
    """
    settings = Settings.load()
    with arranging(settings) as groups:
        arrangement = groups.arranged()
        gone = arrangement.group(group)
        count = sum(placement.group == gone.id for placement in arrangement.placements.values())
        if gone.home.kind == "team":
            if not (is_agreed or agreed(gone, count, groups.unfinished(gone))):
                say("nothing is deleted")
                return exit_codes.GOAL_NOT_MET
            # The group goes last: until then the same command can be given again, whatever happened between.
            end_runs(settings, groups, gone)
        while groups.delete(gone):
            end_runs(settings, groups, gone)  # one has begun meanwhile
    what = "in no list any more" if gone.home.kind == "team" else "in the default group now"
    say(
        f"{told(gone)} is deleted"
        + (f"; {counted(count, 'run')} of it {'is' if count == 1 else 'are'} {what}" if count else "")
    )
    return exit_codes.GOAL_MET


def agreed(group: Group, count: int, unfinished: Sequence[str]) -> bool:
    """Whether the person at the terminal wants this. Raises Mistake where nobody can be asked."""
    if not sys.stdin.isatty():
        raise Mistake(
            f"deleting {told(group)} takes {counted(count, 'run')} out of all lists, and nobody can be asked here; "
            "give --yes to do it"
        )
    stopped = f", of which {len(unfinished)} must be stopped first" if unfinished else ""
    question = f"Delete {told(group)} with {counted(count, 'run')}{stopped}? This cannot be undone."
    return click.confirm(visible(question), err=True)


def end_runs(settings: Settings, groups: Groups, group: Group) -> None:
    """End what has not ended of a group's runs."""
    if unfinished := groups.unfinished(group):
        end_all(settings, unfinished)


def end_all(settings: Settings, runs: Sequence[str]) -> None:
    """End runs, whoever works on them, and wait until they have ended."""
    # Here, because no other command of this group needs what it takes to work on runs.
    import anyio

    from ...app import App
    from ...runs.run_rest import wait_for_rest
    from ...runs.run_state import is_over
    from ...store.sqlite.reader import Reader
    from ...values.event import RunEnded

    async def end(app: App, run: str, turn: anyio.CapacityLimiter) -> None:
        async with turn:
            last: object = None
            # The process of a run may die before it hears of it; then it is ended from here.
            while not isinstance(last, RunEnded):
                try:
                    await app.stop(run)
                except Mistake:
                    with Reader(settings.store) as reader:
                        if not is_over(reader.summary(run)):
                            raise
                last = await wait_for_rest(settings.store, run)
            say(f"run {run} has ended ({last.outcome})")

    async def all_of_them() -> None:
        turn = anyio.CapacityLimiter(MOST_ENDING)
        async with App(settings) as app, anyio.create_task_group() as group:
            for run in runs:
                group.start_soon(end, app, run, turn)

    say(f"{counted(len(runs), 'run')} asked to stop")
    anyio.run(all_of_them)


def table(parts: Sequence[Section], begun: dict[str, float], *, now: float) -> str:
    """The groups in columns."""
    rows = [["GROUP", "NAME", "RUNS", "NEWEST", ""]]
    for group, runs in parts:
        newest = ago(now - max(begun[run] for run in runs)) if runs else "-"
        name = f"{marks(group)}{cut(visible(group.name), LONGEST_HEADING)}"
        rows.append([group.tag, name, str(len(runs)), newest, visible(origin(group))])
    return "\n".join("  ".join(row).rstrip() for row in aligned(rows))


@contextmanager
def arranging(settings: Settings | None = None) -> Iterator[Groups]:
    """The groups of the store; raises NoSuchRun where there is none yet."""
    store = (settings or Settings.load()).store
    if not store.exists():
        raise NoSuchRun(NO_RUNS)
    with Groups(store) as groups:
        yield groups


def found(groups: Groups, names: Sequence[str]) -> list[Group | Placement]:
    """All that is named, each once; nothing is done where one of them is not there. Raises Mistake."""
    arrangement = groups.arranged()
    things: list[Group | Placement] = []
    for name in names:
        if (thing := arrangement.find(name)) not in things:
            things.append(thing)
    return things


def told(thing: Group | Placement) -> str:
    """A group or a run, as sentences speak of it."""
    return f"run {thing.run}" if isinstance(thing, Placement) else f"group {thing.name!r} ({thing.tag})"
