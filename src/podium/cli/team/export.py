"""`podium team export`: write a team to a portable file."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from ...files.presets import Preset
from ...files.team_definition import find_team
from ...values.errors import Mistake
from ..terminal.command_options import repo_option
from ..terminal.text import as_json, print_to_stderr
from .team_lookup import load_team_context


@click.command("export")
@click.argument("name")
@click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=Path))
@repo_option
def team_export_command(name: str, file: Path | None, repo: Path | None) -> None:
    """Print the team NAME as JSON with everything that it needs, or write it to a new FILE.

    Import it on any machine with: podium team save NAME --from FILE.
    """
    context = load_team_context(repo)
    text = format_portable_preset(find_team(name, context.roster, repo=context.repo, home=context.home).as_preset())
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


def format_portable_preset(preset: Preset) -> str:
    """Return a preset as JSON, without the fields that are valid only on this machine."""
    return as_json(msgspec.structs.replace(preset, source=""))
