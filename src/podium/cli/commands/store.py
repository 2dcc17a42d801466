"""`podium store`: create, migrate, check, prune, export and import the store."""

from __future__ import annotations

import time
from pathlib import Path

import click

from ...files.settings import Settings
from ...runs.queries.run_lookup import NO_RUNS
from ...runs.run_retention import ENDED_STATES, archive_and_remove, select_removable
from ...store.store_check import StoreCheck, check_store, migrate_store, name_migrations, read_version
from ...store.store_export import export_store
from ...store.store_file import import_store
from ...values.errors import Mistake, NoSuchRun
from ...values.event import SCHEMA
from ...values.plain_text import format_count
from ...values.store_address import StoreAddress
from ..output import exit_codes
from ..output.text import align_columns, as_json, escape_for_terminal, format_age, print_to_stderr
from .logs import parse_age


@click.group("store")
def store_command() -> None:
    """Create, migrate, check, prune, export and import the store.

    The store is a SQLite file or a PostgreSQL database; set it with PODIUM_STORE or the setting `store`.
    """


@store_command.command("init")
def store_init_command() -> None:
    """Create the store if there is none, and print its address.

    Other commands create it too when they need it. In PostgreSQL, the schema and its tables are created.
    """
    store = Settings.load().store
    version = read_version(store)
    if 0 < version < len(name_migrations(store)):
        raise Mistake(f"{store} exists, but its version {version} is outdated; update it with: podium store migrate")
    created = migrate_store(store)
    print_to_stderr(f"{'created' if created else 'there is already a store:'} {store}, {_describe_version(store)}")


@store_command.command("migrate")
def store_migrate_command() -> None:
    """Apply the store's pending migrations, and list them."""
    store = Settings.load().store
    if not read_version(store):
        raise Mistake(f"there is no store at {store}; create it with: podium store init")
    applied = migrate_store(store)
    if applied:
        print_to_stderr(f"{store}: applied {format_count(len(applied), 'migration')}: {', '.join(applied)}")
    print_to_stderr(f"{store} is up to date, {_describe_version(store)}")


@store_command.command("check")
@click.option("--json", "is_json", is_flag=True, help="Print the result as JSON.")
def store_check_command(is_json: bool) -> int:
    """Check every timeline and look for rows that do not belong to any run. The exit code is 8 if the store is damaged.

    Nothing is changed. Runs whose process no longer exists are listed, but do not count as damage.
    """
    store = _require_current_store()
    result = check_store(store)
    if is_json:
        fields = {"schema": SCHEMA, "store": str(store), "version": read_version(store), "runs": result.runs}
        more = {"entries": result.entries, "problems": result.problems, "notes": result.notes}
        click.echo(as_json({**fields, **more}))
    else:
        click.echo("\n".join(_format_check(store, result)))
    return exit_codes.INTEGRITY if result.problems else exit_codes.GOAL_MET


@store_command.command("prune")
@click.option(
    "--older-than", "age", required=True, metavar="AGE", help="Remove runs that ended longer ago than this, e.g. 30d."
)
@click.option(
    "--state", "states", default="", metavar="STATES", help="Remove only runs in these states, e.g. succeeded,failed."
)
@click.option("--archive", type=click.Path(path_type=Path), metavar="DIR", help="Folder for the archived runs.")
@click.option(
    "--no-archive", "is_lost", is_flag=True, help="Remove the runs without archiving them; they cannot be restored."
)
@click.option("--dry-run", "is_dry", is_flag=True, help="Only list the runs that would be removed.")
@click.option("--json", "is_json", is_flag=True, help="Print the runs as JSON.")
def store_prune_command(
    age: str, states: str, archive: Path | None, is_lost: bool, is_dry: bool, is_json: bool
) -> None:
    """Remove old runs that have ended. By default, each run is archived to a file first.

    To read an archived run, use podium show, podium logs or podium verify with --file. To restore it, use podium
    store import.
    """
    if archive is not None and is_lost:
        raise click.UsageError("--archive and --no-archive cannot be combined; give one of them")
    seconds, chosen = _require_age(age), _require_states(states)
    settings = Settings.load()
    store = _require_current_store()
    folder = None if is_lost else (archive or settings.home / "archive").absolute()
    now = time.time()
    runs = select_removable(store, before=now - seconds, states=chosen)
    if not is_dry:
        for run in runs:
            archive_and_remove(store, run.id, folder)
    if is_json:
        found = [{"id": run.id, "state": run.phase, "ended": run.last.at} for run in runs]
        click.echo(as_json({"schema": SCHEMA, "archive": None if folder is None else str(folder), "runs": found}))
        return
    rows = [[run.id, run.phase, format_age(now - run.last.at)] for run in runs]
    for row in align_columns(rows):
        click.echo(escape_for_terminal("  ".join(row).rstrip()))
    where = f", archived in {folder}" if folder is not None and runs and not is_dry else ""
    print_to_stderr(f"{'would remove' if is_dry else 'removed'} {format_count(len(runs), 'run')}{where}")


@store_command.command("export")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--skip-running", "is_skipping", is_flag=True, help="Leave out runs that a process is working on.")
def store_export_command(file: Path, is_skipping: bool) -> None:
    """Write everything in the store to FILE, so that it can be imported into another store.

    This store keeps its runs, so after an import, an unfinished run is in both stores. Continue it in only one of them.
    """
    store = _require_current_store()
    if file.exists():
        raise Mistake(f"{file} already exists; give another name")

    def report_foreign(runs: list[str]) -> None:
        what = format_count(len(runs), "unfinished run")
        print_to_stderr(f"left out {what} that a host of the fleet created or may have created: {', '.join(runs)}")

    skipped = export_store(store, file, is_skipping_running=is_skipping, on_foreign=report_foreign)
    if skipped:
        print_to_stderr(f"left out {format_count(len(skipped), 'running run')}: {', '.join(skipped)}")
    print_to_stderr(f"exported {store} to {file}; import it with: PODIUM_STORE=ADDRESS podium store import {file}")


@store_command.command("import")
@click.argument("file", type=click.Path(path_type=Path))
def store_import_command(file: Path) -> None:
    """Add the runs in FILE that the store does not have. FILE is an exported store or an archived run.

    If FILE is damaged or incomplete, nothing is imported and the exit code is 8.
    """
    store = Settings.load().store
    report = import_store(store, file)
    if report.existing:
        print_to_stderr(f"not imported: {format_count(len(report.existing), 'run')} that the store already has")
    if report.foreign_worktrees:
        worktrees = format_count(report.foreign_worktrees, "worktree")
        print_to_stderr(
            f"not imported: {worktrees} on other machines, because a SQLite store supports only one machine"
        )
    print_to_stderr(f"imported {format_count(len(report.added), 'run')} into {store}")


def _require_current_store() -> StoreAddress:
    """Return the store. Raise Mistake if it has to be migrated first, and NoSuchRun if there is none."""
    store = Settings.load().store
    version = read_version(store)
    if version == 0:
        raise NoSuchRun(NO_RUNS)
    if version < len(name_migrations(store)):
        raise Mistake(f"the version {version} of {store} is outdated; update it first with: podium store migrate")
    return store


def _describe_version(store: StoreAddress) -> str:
    """Return the version of a store as text."""
    return f"version {read_version(store)}"


def _format_check(store: StoreAddress, result: StoreCheck) -> list[str]:
    """Return the lines of a check: problems, notes and the summary."""
    state = f"damaged, {format_count(len(result.problems), 'problem')}" if result.problems else "intact"
    counts = f"{format_count(result.runs, 'run')}, {result.entries:,} entries"
    return [
        *(escape_for_terminal(f"problem: {problem}") for problem in result.problems),
        *(escape_for_terminal(f"note: {note}") for note in result.notes),
        escape_for_terminal(f"{store} is {state}: {_describe_version(store)}, {counts}"),
    ]


def _require_age(text: str) -> float:
    """Parse an age such as `30d`, and return it in seconds. Raise UsageError if `text` is not a valid age."""
    age = parse_age(text)
    if age is None:
        raise click.UsageError(f"invalid age for --older-than: {text!r}; use a value such as 30d, 12h, 90m or 0s")
    return age


def _require_states(text: str) -> tuple[str, ...]:
    """Return the states in a comma-separated list. If it is empty, return all end states.

    Raise UsageError if one of the states is not an end state.
    """
    states = tuple(state.strip() for state in text.split(",")) if text else ENDED_STATES
    if wrong := [state for state in states if state not in ENDED_STATES]:
        raise click.UsageError(f"--state {wrong[0]!r} is not a state of an ended run; use {', '.join(ENDED_STATES)}")
    return states
