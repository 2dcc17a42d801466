"""`podium decisions`: list the decisions made in a repository, or show one as a decision record."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import click

from ...files.settings import Settings
from ...files.squad.decision_inbox import merge_inbox
from ...runs.queries.repository_decisions import find_decision, find_decision_repo, list_decisions
from ...system.locations import find_repo
from ...values.column import encode_rows
from ...values.event import SCHEMA
from ...views.decision_listing import DECISION_COLUMNS, encode_decision, list_decision_rows
from ...views.decision_record import render_decision
from ..output.command_options import json_option, repo_option
from ..output.table import format_table
from ..output.text import as_json, escape_for_terminal, print_to_stderr

NARROWEST_TOPIC = 20
INBOX_LOCK = "squad-inbox.lock"
NO_DECISIONS = 'no decisions yet; make one with: podium decide "topic" --option A --option B'


class DecisionsCommandGroup(click.Group):
    """The subcommands of `podium decisions`.

    If the first argument is not the name of a subcommand, it is treated as the id of the decision to show.
    """

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        return super().resolve_command(ctx, args if args[0] in self.commands else ["show", *args])


@click.group("decisions", cls=DecisionsCommandGroup, invoke_without_command=True, subcommand_metavar="[ID]")
@click.option("--in-force", "is_in_force", is_flag=True, help="List only decisions that are in force.")
@repo_option
@json_option
@click.pass_context
def decisions_command(ctx: click.Context, is_in_force: bool, repo: Path | None, is_json: bool) -> None:
    """List the decisions made in this repository, newest first. With ID, show that decision record in Markdown."""
    if ctx.invoked_subcommand is not None:
        return
    place = find_repo(repo or Path())
    decisions = list_decisions(Settings.load(repo=place).store, find_decision_repo(place))
    rows = [
        row for row in reversed(list_decision_rows(decisions)) if not is_in_force or row.record.status == "accepted"
    ]
    if is_json:
        click.echo(as_json({"schema": SCHEMA, "decisions": encode_rows(rows, DECISION_COLUMNS)}))
    elif not rows:
        print_to_stderr("no decisions are in force" if decisions else NO_DECISIONS)
    else:
        most = shutil.get_terminal_size().columns
        for line in format_table(
            rows, DECISION_COLUMNS, now=time.time(), most=most, least=NARROWEST_TOPIC, has_headings=False
        ):
            click.echo(line)


@decisions_command.command("show")
@click.argument("id")
@json_option
@click.pass_context
def show_decision_command(ctx: click.Context, id: str, is_json: bool) -> None:
    """Show the decision with this ID as a decision record."""
    assert ctx.parent is not None
    place = find_repo(ctx.parent.params["repo"] or Path())
    record = find_decision(Settings.load(repo=place).store, find_decision_repo(place), id)
    if is_json:
        click.echo(as_json({"schema": SCHEMA, "decision": encode_decision(record)}))
    else:
        click.echo(escape_for_terminal(render_decision(record)), nl=False)


@decisions_command.command("merge-inbox")
@json_option
@click.pass_context
def merge_inbox_command(ctx: click.Context, is_json: bool) -> None:
    """Append the decisions in the squad's inbox to its decisions.md, and empty the inbox."""
    assert ctx.parent is not None
    place = find_repo(ctx.parent.params["repo"] or Path())
    result = merge_inbox(place, lock=Settings.load(repo=place).home / INBOX_LOCK)
    if is_json:
        click.echo(as_json({"schema": SCHEMA, "merged": result.merged, "notices": result.notices}))
        return
    for name in result.merged:
        click.echo(escape_for_terminal(name))
    for notice in result.notices:
        print_to_stderr(notice)
    if not result.merged and not result.notices:
        print_to_stderr("the inbox is empty")
