"""`podium team delete`: take a squad's folder or a preset away, after asking."""

from __future__ import annotations

import os
from pathlib import Path

import click

from ...roster import presets
from ...roster.team_definition import Definition, delete, find
from ...system.locations import shown
from ..commands.config import in_repo
from ..terminal.measure import counted
from ..terminal.say import say
from .team_lookup import Place, must_agree, place


@click.command("delete")
@click.argument("name")
@click.option("--yes", "is_agreed", is_flag=True, help="Delete it without being asked.")
@in_repo
def command(name: str, is_agreed: bool, repo: Path | None) -> None:
    """Delete the team NAME: the repository's .squad or .ai-team, or a team of your own.

    Teams of agent files are deleted with these files. user:NAME means your own where the
    repository has one of that name, too.
    """
    here = place(repo)
    found = find(name, here.roster, repo=here.repo, home=here.home)
    if found.kind in ("squad", "preset"):
        must_agree(f"Delete {described(found, here)}?", is_agreed=is_agreed)
    delete(found, repo=here.repo, home=here.home)
    say(f"deleted: {described_place(found, here)}")
    if found.kind == "squad" and (copy := presets.load(here.home).get(found.name)) is not None:
        say(f"your own copy stays: podium team delete {copy.name!r} deletes that, too")


def described(found: Definition, here: Place) -> str:
    """What would be gone."""
    if found.squad is None or found.squad.source is None:
        return f"the team {found.name} of your own"
    files = sum(len(names) for _, _, names in os.walk(found.squad.source))
    where = shown(found.squad.source, repo=here.repo)
    return f"the team {found.name}, which is the folder {where} with {counted(files, 'file')}, in {here.repo}"


def described_place(found: Definition, here: Place) -> str:
    """What is gone."""
    if found.squad is None or found.squad.source is None:
        return f"{found.name} in {shown(here.home / presets.FILE)}"
    return f"{shown(found.squad.source, repo=here.repo)} in {here.repo}"
