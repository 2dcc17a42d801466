"""`podium team export`: one team as a file that can be taken along."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from ...roster.presets import Preset
from ...roster.team_definition import find
from ...values.errors import Mistake
from ..commands.config import in_repo
from ..terminal.say import say
from ..terminal.text import as_json
from .team_lookup import place


@click.command("export")
@click.argument("name")
@click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=Path))
@in_repo
def command(name: str, file: Path | None, repo: Path | None) -> None:
    """Print the team NAME as JSON with all that it needs, or write it to FILE.

    podium team save NAME --from FILE takes it in again, here or elsewhere.
    """
    here = place(repo)
    text = portable(find(name, here.roster, repo=here.repo, home=here.home).as_preset())
    if file is None:
        click.echo(text)
        return
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(f"{text}\n")
    except FileExistsError as error:
        raise Mistake(f"{file} is there already, and is not overwritten; name another file") from error
    except OSError as error:
        raise Mistake(f"{file} cannot be written: {error.strerror or error}") from error
    say(f"exported: {file}")


def portable(preset: Preset) -> str:
    """A preset without what holds on this machine only."""
    return as_json(msgspec.structs.replace(preset, source=""))
