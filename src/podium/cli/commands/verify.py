"""`podium verify`: check that the timeline of a run has not been altered."""

from __future__ import annotations

from pathlib import Path

import click

from ...store.run_integrity import describe_undetectable_loss
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
