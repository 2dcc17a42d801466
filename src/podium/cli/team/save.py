"""`podium team save`: keep a team as the repository's squad, and a copy as one's own."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from ...roster.agent_name import joined
from ...roster.presets import FILE, Preset
from ...roster.squad import Team, discover, slug
from ...roster.team_definition import find, left_out, save
from ...system.locations import shown
from ...values.errors import Mistake
from ..commands.config import in_repo
from ..terminal.say import say
from ..terminal.spoken import spoken
from .team_lookup import must_agree, place


@click.command("save")
@click.argument("name")
@click.option("--from", "file", metavar="FILE", help="Save the team in FILE, as podium team export wrote it.")
@click.option("--mine", "is_mine", is_flag=True, help="Keep it as your own, and write nothing in the repository.")
@click.option("--yes", "is_agreed", is_flag=True, help="Replace another squad of the repository without being asked.")
@in_repo
def command(name: str, file: str | None, is_mine: bool, is_agreed: bool, repo: Path | None) -> None:
    """Write the team NAME as .squad in the repository, and keep a copy of your own.

    A FILE of - is read from standard input. What else is in .squad stays; a member that is no longer
    in the team moves to agents/_alumni.
    """
    here = place(repo)
    team: Team | None = None
    if file is not None:
        preset = msgspec.structs.replace(written(file), name=name)
    else:
        found = find(name, here.roster, repo=here.repo, home=here.home)
        preset, team = found.as_preset(), found.squad
    if not is_mine:
        must_replace(preset, here.repo, is_agreed=is_agreed)
    folder = save(preset, repo=None if is_mine else here.repo, home=here.home, team=team)
    if folder is not None:
        say(f"saved: {shown(folder, repo=here.repo)} in {shown(here.repo)}")
        if team is None and (lost := left_out(preset)):
            say(f"note: a squad's folder has no place for {joined(lost)}; your own copy has all of it")
    say(f"saved: {preset.name} in {shown(here.home / FILE)}")


def must_replace(preset: Preset, repo: Path, *, is_agreed: bool) -> None:
    """Ask before another team of the repository is replaced."""
    there = discover(repo)
    if there is not None and slug(there.name) != slug(preset.name):
        who = joined([member.name for member in there.members])
        must_agree(
            f"The repository's squad is {there.name} with {who}; replace it by {preset.name}?", is_agreed=is_agreed
        )


def written(file: str) -> Preset:
    """The team in a file. Raises Mistake where there is none."""
    try:
        text = spoken("-") if file == "-" else Path(file).read_text(encoding="utf-8")
        preset = msgspec.json.decode(text, type=Preset)
    except (msgspec.MsgspecError, OSError, UnicodeDecodeError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise Mistake(f"{file} cannot be read as a team ({why}); podium team export writes such files") from error
    if not preset.workers:
        raise Mistake(f"the team in {file} has no workers, so that there is nothing to save; add one")
    return msgspec.structs.replace(preset, source="")
