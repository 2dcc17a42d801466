"""`podium team save`: save a team as the squad of the repository, and a copy as a preset."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from ...roster.presets import PRESETS_FILE, Preset
from ...roster.squad import Team, discover, slug
from ...roster.team_definition import find_team, list_preset_only_settings, save_team
from ...system.locations import format_path
from ...values.errors import Mistake
from ...values.plain_text import join_words
from ..terminal.command_options import read_text_argument, repo_option
from ..terminal.text import print_to_stderr
from .team_lookup import confirm_action, load_team_context


@click.command("save")
@click.argument("name")
@click.option("--from", "file", metavar="FILE", help="Read the team from FILE, written by podium team export.")
@click.option("--mine", "is_mine", is_flag=True, help="Save only your own copy; write nothing to the repository.")
@click.option("--yes", "is_agreed", is_flag=True, help="Replace another squad in the repository without asking.")
@repo_option
def team_save_command(name: str, file: str | None, is_mine: bool, is_agreed: bool, repo: Path | None) -> None:
    """Save the team NAME as .squad in the repository, and a copy as your own.

    If FILE is -, it is read from standard input. Other files in .squad are kept. A member that is no
    longer in the team moves to agents/_alumni.
    """
    context = load_team_context(repo)
    team: Team | None = None
    if file is not None:
        preset = msgspec.structs.replace(read_team_file(file), name=name)
    else:
        found = find_team(name, context.roster, repo=context.repo, home=context.home)
        preset, team = found.as_preset(), found.squad
    if not is_mine:
        confirm_replacement(preset, context.repo, is_agreed=is_agreed)
    folder = save_team(preset, repo=None if is_mine else context.repo, home=context.home, team=team)
    if folder is not None:
        print_to_stderr(f"saved: {format_path(folder, repo=context.repo)} in {format_path(context.repo)}")
        if team is None and (unsaved := list_preset_only_settings(preset)):
            print_to_stderr(f"note: a squad folder cannot store {join_words(unsaved)}; your own copy has everything")
    print_to_stderr(f"saved: {preset.name} in {format_path(context.home / PRESETS_FILE)}")


def confirm_replacement(preset: Preset, repo: Path, *, is_agreed: bool) -> None:
    """Ask for confirmation if this replaces another team in the repository."""
    existing = discover(repo)
    if existing is not None and slug(existing.name) != slug(preset.name):
        who = join_words([member.name for member in existing.members])
        confirm_action(
            f"The repository's squad is {existing.name} with {who}; replace it with {preset.name}?", is_agreed=is_agreed
        )


def read_team_file(file: str) -> Preset:
    """Return the team in a file. Raise Mistake if it contains no team."""
    try:
        text = read_text_argument("-") if file == "-" else Path(file).read_text(encoding="utf-8")
        preset = msgspec.json.decode(text, type=Preset)
    except (msgspec.MsgspecError, OSError, UnicodeDecodeError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise Mistake(f"{file} cannot be read as a team ({why}); use a file written by podium team export") from error
    if not preset.workers:
        raise Mistake(f"the team in {file} has no workers, so there is nothing to save; add one")
    return msgspec.structs.replace(preset, source="")
