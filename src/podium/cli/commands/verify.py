"""`podium verify`: check that the timeline of a run has not been altered."""

from __future__ import annotations

import click

from ...core.journal_rows import find_chain_break
from ...runs.run_lookup import open_reader
from ...setup.settings import Settings
from ...store.sqlite.progress_files import find_lost_entries, read_progress
from ...values.event import SCHEMA
from ..terminal import exit_codes
from ..terminal.text import as_json, escape_for_terminal


@click.command("verify")
@click.argument("run")
@click.option("--json", "is_json", is_flag=True, help="Print the result as JSON.")
def verify_command(run: str, is_json: bool) -> int:
    """Check that no entry of RUN was changed, removed, inserted or moved. The exit code is 8 if one was.

    Entries removed from the end leave no gap. Their removal is detected only up to the last entry that was
    synced to disk, such as the start of an action. For later entries, compare the last hash with a copy.
    """
    store = Settings.load().store
    with open_reader(store) as reader:
        id = reader.find_run(run)
        rows = reader.read_rows(id)
    progress = read_progress(store, id)
    chain_break = find_chain_break(rows)
    if chain_break is None and progress is not None:
        chain_break = find_lost_entries(progress, rows)
    last = rows[-1].hash.hex() if rows else ""
    if is_json:
        fields = {"schema": SCHEMA, "run": id, "entries": len(rows), "whole": chain_break is None, "break": chain_break}
        click.echo(as_json({**fields, "hash": last}))
    elif chain_break is None:
        click.echo(f"run {id} is intact: {len(rows):,} entries, last hash {last[:16]}")
    else:
        click.echo(f"run {id} has been altered or damaged: {escape_for_terminal(chain_break)}")
    return exit_codes.GOAL_MET if chain_break is None else exit_codes.INTEGRITY
