"""`podium verify`: whether a run's timeline is what was once written."""

from __future__ import annotations

import click

from ...core.journal import find_chain_break
from ...runs.run_lookup import open_reader
from ...setup.settings import Settings
from ...values.event import SCHEMA
from ..terminal import exit_codes
from ..terminal.text import as_json, escape_for_terminal


@click.command("verify")
@click.argument("run")
@click.option("--json", "is_json", is_flag=True, help="Print the finding as JSON.")
def verify_command(run: str, is_json: bool) -> int:
    """Check that no entry of RUN was changed, removed, inserted or moved; the exit code is 8 when one was.

    Entries missing at the very end leave no gap: the last hash, which is printed, tells.
    """
    with open_reader(Settings.load().store) as reader:
        id = reader.find_run(run)
        rows = reader.read_rows(id)
    chain_break = find_chain_break(rows)
    last = rows[-1].hash.hex() if rows else ""
    if is_json:
        fields = {"schema": SCHEMA, "run": id, "entries": len(rows), "whole": chain_break is None, "break": chain_break}
        click.echo(as_json({**fields, "hash": last}))
    elif chain_break is None:
        click.echo(f"run {id} is whole: {len(rows):,} entries, the last with the hash {last[:16]}")
    else:
        click.echo(f"run {id} is not what was written: {escape_for_terminal(chain_break)}")
    return exit_codes.GOAL_MET if chain_break is None else exit_codes.INTEGRITY
