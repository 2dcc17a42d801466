"""`podium team save`: save a team as the repository's squad, and a copy of the team as a preset."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from ...files.presets import PRESETS_FILE, Preset
from ...files.squad import Team
from ...files.team_definition import describe_save_losses, find_team, list_preset_only_settings, save_team
from ...system.locations import format_path
from ...values.errors import Mistake
from ...values.plain_text import join_words
from ..terminal.command_options import read_text_argument, repo_option
from ..terminal.confirmation import confirm_action
from ..terminal.text import print_to_stderr
from .team_lookup import load_team_context, print_overridden_builtin


@click.command("save")
@click.argument("name")
@click.option("--from", "file", metavar="FILE", help="Read the team from FILE, written by podium team export.")
@click.option("--mine", "is_mine", is_flag=True, help="Save only your own copy; write nothing to the repository.")
@click.option(
    "--yes",
    "is_agreed",
    is_flag=True,
    help="Save without asking for confirmation, even if settings are lost or another team is replaced.",
)
@repo_option
def team_save_command(name: str, file: str | None, is_mine: bool, is_agreed: bool, repo: Path | None) -> None:
    """Save the team NAME in the repository's .squad folder, and save a copy among your own teams.

    If FILE is -, it is read from standard input. Other files in .squad are kept. A member that is no
    longer in the team moves to agents/_alumni. If the folder cannot store all settings of the team, or if another
    team would be replaced, the command asks for confirmation first.
    """
    context = load_team_context(repo)
    team: Team | None = None
    if file is not None:
        preset = msgspec.structs.replace(read_team_file(file), name=name)
    else:
        found = find_team(name, context.roster, repo=context.repo, home=context.home)
        preset, team = found.as_own_copy(context.home), found.squad
    target = None if is_mine else context.repo
    if losses := describe_save_losses(preset, repo=target, home=context.home, team=team):
        confirm_action(f"{' '.join(losses)} Save {preset.name}?", is_agreed=is_agreed)
    folder = save_team(preset, repo=target, home=context.home, team=team)
    if folder is not None:
        print_to_stderr(f"saved: {format_path(folder, repo=context.repo)} in {format_path(context.repo)}")
        if team is None and (unsaved := list_preset_only_settings(preset)):
            print_to_stderr(f"note: a squad folder cannot store {join_words(unsaved)}; your own copy has everything")
    print_to_stderr(f"saved: {preset.name} in {format_path(context.home / PRESETS_FILE)}")
    print_overridden_builtin(preset.name, context)


def read_team_file(file: str) -> Preset:
    """Read a team from a file or, if `file` is `-`, from standard input. Raise Mistake if it contains no team."""
    try:
        text = read_text_argument("-") if file == "-" else Path(file).read_text(encoding="utf-8")
        preset = msgspec.json.decode(text, type=Preset)
    except (msgspec.MsgspecError, OSError, UnicodeDecodeError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise Mistake(f"{file} cannot be read as a team ({why}); use a file written by podium team export") from error
    if not preset.workers:
        raise Mistake(f"the team in {file} has no workers, so there is nothing to save; add one")
    return msgspec.structs.replace(preset, source="")
