"""`podium group`: organise the list of runs into groups.

Most subcommands accept both groups and runs; some accept only groups or only runs. A run is named as in other
commands.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from ...files.settings import Settings
from ...runs import find
from ...runs.queries.run_listing import GROUP_COLUMNS, GroupRow
from ...runs.queries.run_lookup import NO_RUNS
from ...store.group_rows import Groups
from ...values.column import encode_rows
from ...values.errors import Mistake, NoSuchRun
from ...values.event import SCHEMA
from ...values.plain_text import format_count
from ...views.run_groups import Group, GroupedRun, GroupSection, build_sections, describe_target
from ..output import exit_codes
from ..output.command_options import get_command_actor
from ..output.table import format_table
from ..output.text import as_json, escape_for_terminal, print_to_stderr

MOST_ENDING = 16
"""Maximum number of runs to stop at the same time. Each needs several open files."""


@click.group("group", invoke_without_command=True)
@click.pass_context
def group_command(ctx: click.Context) -> Any:
    """Organise runs: rename, pin, move and archive groups.

    Each repository and each team has a group. Refer to a group by its name or id (g2), and to a run as
    in other commands.
    """
    return ctx.invoke(group_list_command) if ctx.invoked_subcommand is None else None


@group_command.command("list")
@click.option("--all", "is_all", is_flag=True, help="Include archived groups.")
@click.option("--json", "is_json", is_flag=True, help="Print the list as JSON.")
def group_list_command(is_all: bool = False, is_json: bool = False) -> None:
    """List the groups in the same order as podium ps."""
    store = Settings.load().store
    parts: list[GroupSection] = []
    begun: dict[str, float] = {}
    if store.exists():
        with Groups(store) as groups:
            begun = groups.read_start_times()
            parts = build_sections(begun, groups.load_arrangement())
    listed = [part for part in parts if is_all or not part.group.is_archived]
    rows = [
        GroupRow(group=group, runs=len(runs), newest_at=max((begun[run] for run in runs), default=None))
        for group, runs in listed
    ]
    if is_json:
        click.echo(as_json({"schema": SCHEMA, "groups": encode_rows(rows, GROUP_COLUMNS)}))
    elif not parts:
        print_to_stderr(NO_RUNS)
    else:
        click.echo("\n".join(format_table(rows, GROUP_COLUMNS, now=time.time())))
        if len(listed) < len(parts):
            print_to_stderr(f"not shown: {len(parts) - len(listed)} archived; run podium group list --all to list them")


@group_command.command("rename")
@click.argument("name")
@click.argument("new", required=False)
def group_rename_command(name: str, new: str | None) -> None:
    """Rename the group or run NAME to NEW; without NEW, restore its original name."""
    with _open_groups() as groups:
        [thing] = _find_groups_and_runs(groups, [name])
        called = groups.rename(thing, new)
    print_to_stderr(
        f"{describe_target(thing)} is now called {called!r}"
        if called
        else f"{describe_target(thing)} was renamed back to its original name"
    )


@group_command.command("pin")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
def group_pin_command(names: tuple[str, ...]) -> None:
    """Pin groups to the top of the list, or runs to the top of their groups."""
    with _open_groups() as groups:
        for thing in _find_groups_and_runs(groups, names):
            groups.pin(thing, is_pinned=True)
            print_to_stderr(f"{describe_target(thing)} is pinned")


@group_command.command("unpin")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
def group_unpin_command(names: tuple[str, ...]) -> None:
    """Unpin groups or runs."""
    with _open_groups() as groups:
        for thing in _find_groups_and_runs(groups, names):
            groups.pin(thing, is_pinned=False)
            print_to_stderr(f"{describe_target(thing)} is no longer pinned")


@group_command.command("archive")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
def group_archive_command(names: tuple[str, ...]) -> None:
    """Hide groups or runs from lists; --all shows them. A new run in an archived group unarchives the group."""
    with _open_groups() as groups:
        for thing in _find_groups_and_runs(groups, names):
            groups.archive(thing, is_archived=True)
            print_to_stderr(f"{describe_target(thing)} is archived")


@group_command.command("unarchive")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
def group_unarchive_command(names: tuple[str, ...]) -> None:
    """Show archived groups or runs in lists again."""
    with _open_groups() as groups:
        for thing in _find_groups_and_runs(groups, names):
            groups.archive(thing, is_archived=False)
            print_to_stderr(f"{describe_target(thing)} is no longer archived")


@group_command.command("move")
@click.argument("run")
@click.argument("group")
def group_move_command(run: str, group: str) -> None:
    """Move RUN to GROUP. The runs of a team stay together and cannot be moved."""
    with _open_groups() as groups:
        arrangement = groups.load_arrangement()
        grouped_run = arrangement.get_listed_run(find.resolve(groups.path, run).run)
        target = arrangement.find_group(group)
        groups.move(grouped_run, target)
    print_to_stderr(f"{describe_target(grouped_run)} is now in {describe_target(target)}")


@group_command.command("order")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option(
    "--newest", "is_newest", is_flag=True, help="Sort the groups, or the runs in the given groups, newest first."
)
def group_order_command(names: tuple[str, ...], is_newest: bool) -> None:
    """Move the given groups to the top of the list, or the given runs to the top of their group, in this order.

    Pinned groups and runs stay above them. The other groups or runs follow, newest first.
    """
    if not names and not is_newest:
        raise click.UsageError("name the groups or runs that should come first in the list, or use --newest")
    with _open_groups() as groups:
        things = _find_groups_and_runs(groups, names)
        named = [thing for thing in things if isinstance(thing, Group)]
        runs = [thing for thing in things if isinstance(thing, GroupedRun)]
        if named and runs:
            raise Mistake("groups and runs cannot be ordered together; specify only groups, or only runs of one group")
        if is_newest:
            _clear_order(groups, named, runs)
        elif runs:
            group = groups.load_arrangement().group_of(runs[0].run)
            assert group is not None
            groups.order_runs(group, runs)
        else:
            groups.order_groups(named)
    print_to_stderr(
        "now sorted newest first"
        if is_newest
        else f"now listed first, in this order: {', '.join(map(describe_target, things))}"
    )


def _clear_order(groups: Groups, named: Sequence[Group], runs: Sequence[GroupedRun]) -> None:
    """Restore the default order, newest first.

    If groups are given, sort the runs in these groups. Otherwise, sort the groups themselves. Raise Mistake if runs are
    given.
    """
    if runs:
        raise Mistake("--newest sorts all runs in a group; specify a group, not a run")
    for group in named:
        groups.order_runs(group, ())
    if not named:
        groups.order_groups(())


@group_command.command("delete")
@click.argument("group")
@click.option("--yes", "is_agreed", is_flag=True, help="Do not ask for confirmation.")
def group_delete_command(group: str, is_agreed: bool) -> int:
    """Delete GROUP.

    If it is a team's group, the runs of the team and of its members are stopped and removed from all lists. Their
    timelines are kept, and podium show can still read them. Their worktrees are removed, except those with unmerged
    or uncommitted work. If GROUP is not a team's group, its runs move to the default group.
    """
    settings = Settings.load()
    with _open_groups(settings) as groups:
        arrangement = groups.load_arrangement()
        target = arrangement.find_group(group)
        count = sum(grouped_run.group == target.id for grouped_run in arrangement.grouped_runs.values())
        runs: list[str] = []
        if target.home.kind == "team":
            if not (is_agreed or _confirm_delete(target, count, groups.list_unfinished(target))):
                print_to_stderr("nothing was deleted")
                return exit_codes.GOAL_NOT_MET
            # The group is deleted last, so that the command can be repeated if it is interrupted.
            _end_group_runs(settings, groups, target)
            runs = groups.list_runs(target)
        while groups.delete(target):
            _end_group_runs(settings, groups, target)  # a run was started in the meantime
            runs = groups.list_runs(target)
    if runs and target.home.repo:
        _remove_clean_worktrees(Path(target.home.repo), runs)
    what = "removed from all lists" if target.home.kind == "team" else "moved to the default group"
    print_to_stderr(
        f"{describe_target(target)} was deleted"
        + (f"; {format_count(count, 'run')} {'was' if count == 1 else 'were'} {what}" if count else "")
    )
    return exit_codes.GOAL_MET


def _confirm_delete(group: Group, count: int, unfinished: Sequence[str]) -> bool:
    """Ask the user at the terminal to confirm the deletion. Raise Mistake if there is no terminal."""
    if not sys.stdin.isatty():
        raise Mistake(
            f"deleting {describe_target(group)} removes {format_count(count, 'run')} from all lists; "
            "there is no terminal to ask for confirmation, so use --yes to confirm"
        )
    stopped = f", stopping {len(unfinished)} of them first" if unfinished else ""
    question = f"Delete {describe_target(group)} with {format_count(count, 'run')}{stopped}? This cannot be undone."
    return click.confirm(escape_for_terminal(question), err=True)


def _end_group_runs(settings: Settings, groups: Groups, group: Group) -> None:
    """Stop the unfinished runs in a group."""
    if unfinished := groups.list_unfinished(group):
        _end_runs_and_wait(settings, unfinished)


def _remove_clean_worktrees(repo: Path, runs: Sequence[str]) -> None:
    """Remove the worktrees of ended runs, except those with unmerged or uncommitted work, and print the results."""
    # Imported here, because the other subcommands do not need git.
    import anyio

    from ...workers.queries.worker_lookup import (
        open_worktrees,  # imported here to keep start-up fast: few commands need it
    )
    from ...workspace.git.repository import Repository
    from ...workspace.worktrees.cleanup import clean_up_worktrees_of_runs

    try:
        worktrees = open_worktrees(Repository.at(repo))
    except Mistake:
        return  # the repository and its worktrees no longer exist
    for line in anyio.run(clean_up_worktrees_of_runs, worktrees, runs):
        print_to_stderr(f"worktree {line.path} ({line.branch}) was {line.act}: {line.why}")


def _end_runs_and_wait(settings: Settings, runs: Sequence[str]) -> None:
    """Stop runs, even if other processes are working on them, and wait until they have ended."""
    # Imported here to keep start-up fast: the other subcommands do not need it.
    import anyio

    from ...app import App  # imported here to keep start-up fast: only deleting a group ends runs
    from ...runs.run_steering import stop_run, wait_for_end_or_pause
    from ...store.reader import StoreReader
    from ...values.event import RunEnded

    by = get_command_actor()

    async def end_run(app: App, run: str, limiter: anyio.CapacityLimiter) -> None:
        async with limiter:
            last: object = None
            # If the run's process exits before it handles the request, this process ends the run.
            while not isinstance(last, RunEnded):
                try:
                    await stop_run(app.runs, run, by=by)
                except Mistake:
                    with StoreReader(settings.store) as reader:
                        if not reader.read_summary(run).is_over:
                            raise
                last = await wait_for_end_or_pause(settings.store, run)
            print_to_stderr(f"run {run} has ended ({last.outcome})")

    async def end_concurrently() -> None:
        limiter = anyio.CapacityLimiter(MOST_ENDING)
        async with App(settings) as app, anyio.create_task_group() as group:
            for run in runs:
                group.start_soon(end_run, app, run, limiter)

    print_to_stderr(f"stopping {format_count(len(runs), 'run')}")
    anyio.run(end_concurrently)


@contextmanager
def _open_groups(settings: Settings | None = None) -> Iterator[Groups]:
    """Open the store's groups. Raise NoSuchRun if there is no store yet."""
    store = (settings or Settings.load()).store
    if not store.exists():
        raise NoSuchRun(NO_RUNS)
    with Groups(store) as groups:
        yield groups


def _find_groups_and_runs(groups: Groups, names: Sequence[str]) -> list[Group | GroupedRun]:
    """Return the given groups and runs, without duplicates. Raise Mistake if one of them does not exist."""
    arrangement = groups.load_arrangement()
    things: list[Group | GroupedRun] = []
    for name in names:
        thing = arrangement.find_group_or_run(name, lambda ref: find.resolve(groups.path, ref).run)
        if thing not in things:
            things.append(thing)
    return things
