"""`podium verify`: check that the timeline of a run has not been altered."""

from __future__ import annotations

from pathlib import Path

import click

from ...store.store_check import find_damage
from ...values.event import SCHEMA
from ..terminal import exit_codes
from ..terminal.run_file import file_option, open_run
from ..terminal.text import as_json, escape_for_terminal


@click.command("verify")
@click.argument("run", required=False, default="")
@file_option
@click.option("--json", "is_json", is_flag=True, help="Print the result as JSON.")
def verify_command(run: str, file: Path | None, is_json: bool) -> int:
    """Check that no entry of RUN was changed, removed, inserted or moved. If one was, the exit code is 8.

    Entries removed from the end leave no gap. Their removal is detected only if at least one of them was synced to disk
    as soon as it was written. Podium does this, for example, with the entry for the start of an action that cannot
    safely be repeated. To detect any other removal at the end, compare the last hash with one that you saved earlier.
    """
    with open_run(run, file) as (reader, id):
        rows = reader.read_rows(id)
        damage = find_damage(reader.path, id, rows)
    last = rows[-1].hash.hex() if rows else ""
    if is_json:
        fields = {"schema": SCHEMA, "run": id, "entries": len(rows), "whole": damage is None, "break": damage}
        click.echo(as_json({**fields, "hash": last}))
    elif damage is None:
        click.echo(f"run {id} is intact: {len(rows):,} entries, last hash {last[:16]}")
    else:
        click.echo(f"run {id} has been altered or damaged: {escape_for_terminal(damage)}")
    return exit_codes.GOAL_MET if damage is None else exit_codes.INTEGRITY
