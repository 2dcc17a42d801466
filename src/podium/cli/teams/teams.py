"""`podium teams` and `team`: list the available teams, and show, save, export or delete one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import msgspec
from msgspec import structs

from ...files import presets
from ...files.discovery import PRESETS_FILE, SQUAD_FOLDERS, Roster, load_roster
from ...files.presets import Preset
from ...files.roster_listing import TeamDetails, TeamItem, TeamMember, describe_team, list_teams
from ...files.squad import Team
from ...files.team_definition import (
    TeamDefinition,
    delete_team,
    describe_save_losses,
    find_overridden_builtin,
    find_team,
    list_preset_only_settings,
    save_team,
)
from ...system.locations import find_home_folder, find_repo, format_path
from ...values.agent import Source
from ...values.errors import Mistake
from ...values.event import SCHEMA
from ...values.plain_text import format_count, join_words
from ..lazy_group import LazyCommandGroup
from ..output.command_options import json_option, read_text_argument, repo_option
from ..output.terminal_input import confirm_action
from ..output.text import (
    align_columns,
    as_json,
    display_width,
    escape_for_terminal,
    fit_columns,
    print_to_stderr,
    truncate_line,
)

WIDEST = 72
NARROWEST = 12


class TeamContext(NamedTuple):
    """A repository, the home folder and the available agents, including the built-in ones."""

    repo: Path
    home: Path
    roster: Roster

    def list_notices(self) -> list[str]:
        """Return the diagnostics about presets and squads, except name conflicts, which the list of agents shows."""
        own = format_path(self.home / PRESETS_FILE)
        return [
            f"{diagnostic.severity}: {diagnostic}"
            for diagnostic in self.roster.diagnostics
            if diagnostic.key != "members"
            and (diagnostic.path == own or diagnostic.path.split("/")[0] in SQUAD_FOLDERS)
        ]

    def print_notices(self) -> None:
        """Print the notices to standard error."""
        for notice in self.list_notices():
            print_to_stderr(notice)


NAMES = ("show", "save", "set", "export", "delete")
SECTIONS: tuple[tuple[Source, str], ...] = (
    ("repo", "From this repository"),
    ("built-in", "Built-in"),
    ("user", "Mine"),
)


@click.command("teams")
@repo_option
@json_option
def teams_command(repo: Path | None, is_json: bool) -> None:
    """List all teams and routers: the repository's, the built-in ones and your own."""
    context = load_team_context(repo)
    rows = list(list_teams(context.roster))
    if is_json:
        click.echo(as_json({"schema": SCHEMA, "teams": rows, "notices": context.list_notices()}))
    else:
        click.echo("\n".join(_format_teams(rows, most=shutil.get_terminal_size().columns)))
        context.print_notices()


def _format_teams(rows: list[TeamItem], *, most: int) -> Iterator[str]:
    """Yield lines that list the teams in sections. Descriptions are truncated to fit `most` columns."""
    for source, title in SECTIONS:
        yield title
        cells = [
            [
                f"  {escape_for_terminal(row.name)}",
                row.mode,
                format_count(len(row.members), "member" if row.mode != "router" else "destination"),
                escape_for_terminal(f"{'(shadowed) ' if row.shadowed else ''}{row.description}"),
            ]
            for row in rows
            if row.source == source
        ]
        yield from fit_columns(cells, most=most)
        if not cells:
            yield "  none"


@click.group("team", cls=LazyCommandGroup, subcommands=NAMES)
def team_command() -> None:
    """Show, save, change, export or delete a team. podium teams lists all teams."""


def load_team_context(repo: Path | None) -> TeamContext:
    """Load the context for the given repository, or for the one that contains the current folder."""
    home = find_home_folder()
    folder = (repo or find_repo(Path.cwd(), home=home)).absolute()
    return TeamContext(folder, home, load_roster(folder, home))


def print_overridden_builtin(name: str, context: TeamContext) -> None:
    """Print the qualified name of the built-in agent that a saved team overrides, if any."""
    if builtin := find_overridden_builtin(name, context.roster):
        print_to_stderr(f"note: {name} now refers to this team; the built-in one is still available as {builtin}")


@click.command("show")
@click.argument("name")
@repo_option
@json_option
def team_show_command(name: str, repo: Path | None, is_json: bool) -> None:
    """Show the team NAME: its mode, its options, and its members with their models and prompts."""
    context = load_team_context(repo)
    team = describe_team(find_team(name, context.roster, repo=context.repo, home=context.home))
    if is_json:
        click.echo(as_json({**structs.asdict(team), "notices": context.list_notices()}))
    else:
        click.echo("\n".join(_format_team(team, most=shutil.get_terminal_size().columns)))
        context.print_notices()


def _format_team(team: TeamDetails, *, most: int) -> Iterator[str]:
    """Yield the lines that describe a team."""
    yield escape_for_terminal(f"{team.name}  {team.description}")
    yield escape_for_terminal(f"{team.kind}, {team.path}")
    yield escape_for_terminal(f"mode {team.mode}, lead model {team.model or 'default'}")
    if team.evaluator:
        yield escape_for_terminal(f"evaluated by {team.evaluator}")
    for key, value in team.options.items():
        is_long = isinstance(value, str) and (len(value) > WIDEST or "\n" in value)
        yield escape_for_terminal(f"{key}: {len(value):,} characters" if is_long else f"{key}: {value}")
    yield "members"
    yield from _format_members(team.members, most=most)


def _format_members(members: list[TeamMember], *, most: int) -> list[str]:
    """Return a line for each member. Role and prompt share the remaining width."""
    named = [[f"  {escape_for_terminal(one.name)}", escape_for_terminal(one.model or "default")] for one in members]
    room = (
        most
        - max((sum(map(display_width, row)) for row in align_columns([[*row, ""] for row in named])), default=0)
        - 6
    )
    roles = [truncate_line(escape_for_terminal(one.role), max(room // 2, NARROWEST)) for one in members]
    rows = [[*row, role, escape_for_terminal(one.prompt)] for row, role, one in zip(named, roles, members, strict=True)]
    return fit_columns(rows, most=most, least=NARROWEST)


@click.command("export")
@click.argument("name")
@click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=Path))
@repo_option
def team_export_command(name: str, file: Path | None, repo: Path | None) -> None:
    """Print the team NAME as JSON with everything that it needs, or write it to a new FILE.

    Import it on any machine with: podium team save NAME --from FILE.
    """
    context = load_team_context(repo)
    text = _format_portable_preset(find_team(name, context.roster, repo=context.repo, home=context.home).as_preset())
    if file is None:
        click.echo(text)
        return
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(f"{text}\n")
    except FileExistsError as error:
        raise Mistake(f"{file} already exists and was not overwritten; choose another file") from error
    except OSError as error:
        raise Mistake(f"{file} cannot be written: {error.strerror or error}") from error
    print_to_stderr(f"exported: {file}")


def _format_portable_preset(preset: Preset) -> str:
    """Return a preset as JSON, without the fields that are valid only on this machine."""
    return as_json(msgspec.structs.replace(preset, source=""))


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
        confirm_action(f"Delete {_describe_team(found, context)}?", is_agreed=is_agreed)
    delete_team(found, repo=context.repo, home=context.home)
    print_to_stderr(f"deleted: {_describe_team_location(found, context)}")
    if found.kind == "squad" and (copy := presets.load_presets(context.home).get(found.name)) is not None:
        print_to_stderr(f"your own copy is kept; run podium team delete {copy.name!r} to delete it too")


def _describe_team(found: TeamDefinition, context: TeamContext) -> str:
    """Return a description of the team for the confirmation prompt."""
    if found.squad is None or found.squad.source is None:
        return f"your own team {found.name}"
    files = sum(len(names) for _, _, names in os.walk(found.squad.source))
    where = format_path(found.squad.source, repo=context.repo)
    return f"the team {found.name}: the folder {where} with {format_count(files, 'file')} in {context.repo}"


def _describe_team_location(found: TeamDefinition, context: TeamContext) -> str:
    """Return a phrase that says where the team is stored."""
    if found.squad is None or found.squad.source is None:
        return f"{found.name} in {format_path(context.home / presets.PRESETS_FILE)}"
    return f"{format_path(found.squad.source, repo=context.repo)} in {context.repo}"


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
        preset = msgspec.structs.replace(_read_team_file(file), name=name)
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


def _read_team_file(file: str) -> Preset:
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
