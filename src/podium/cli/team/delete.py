"""`podium team delete`: delete a squad's folder or a preset, after confirmation."""

from __future__ import annotations

import os
from pathlib import Path

import click

from ...files import presets
from ...files.team_definition import TeamDefinition, delete_team, find_team
from ...system.locations import format_path
from ...values.plain_text import format_count
from ..terminal.command_options import repo_option
from ..terminal.confirmation import confirm_action
from ..terminal.text import print_to_stderr
from .team_lookup import TeamContext, load_team_context


@click.command("delete")
@click.argument("name")
@click.option("--yes", "is_agreed", is_flag=True, help="Do not ask for confirmation.")
@repo_option
def team_delete_command(name: str, is_agreed: bool, repo: Path | None) -> None:
    """Delete the team NAME: the repository's .squad or .ai-team, or one of your own teams.

    To delete a team that is defined by agent files, delete those files. If the repository has a team of
    the same name, user:NAME refers to your own.
    """
    context = load_team_context(repo)
    found = find_team(name, context.roster, repo=context.repo, home=context.home)
    if found.kind in ("squad", "preset"):
        confirm_action(f"Delete {describe_team(found, context)}?", is_agreed=is_agreed)
    delete_team(found, repo=context.repo, home=context.home)
    print_to_stderr(f"deleted: {describe_team_location(found, context)}")
    if found.kind == "squad" and (copy := presets.load_presets(context.home).get(found.name)) is not None:
        print_to_stderr(f"your own copy is kept; run podium team delete {copy.name!r} to delete it too")


def describe_team(found: TeamDefinition, context: TeamContext) -> str:
    """Return a description of the team for the confirmation prompt."""
    if found.squad is None or found.squad.source is None:
        return f"your own team {found.name}"
    files = sum(len(names) for _, _, names in os.walk(found.squad.source))
    where = format_path(found.squad.source, repo=context.repo)
    return f"the team {found.name}: the folder {where} with {format_count(files, 'file')} in {context.repo}"


def describe_team_location(found: TeamDefinition, context: TeamContext) -> str:
    """Return a phrase that says where the team is stored."""
    if found.squad is None or found.squad.source is None:
        return f"{found.name} in {format_path(context.home / presets.PRESETS_FILE)}"
    return f"{format_path(found.squad.source, repo=context.repo)} in {context.repo}"
