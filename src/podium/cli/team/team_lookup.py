"""Where the `team` commands look: a repository, the person's own folder, and all agents of both."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import click

from ...roster.discovery import PRESETS_FILE, SQUAD_FOLDERS, Roster, load_roster
from ...setup.settings import find_home_folder
from ...system.locations import find_repo, format_path
from ...values.errors import Mistake
from ..terminal.text import print_to_stderr


class TeamContext(NamedTuple):
    """A repository and the person's own folder, with everyone in them."""

    repo: Path
    home: Path
    roster: Roster

    def list_notices(self) -> list[str]:
        """What is to be said about presets and squads; who gave way to another's name is seen in the list of agents."""
        own = format_path(self.home / PRESETS_FILE)
        return [
            f"{diagnostic.severity}: {diagnostic}"
            for diagnostic in self.roster.diagnostics
            if diagnostic.key != "members"
            and (diagnostic.path == own or diagnostic.path.split("/")[0] in SQUAD_FOLDERS)
        ]

    def print_notices(self) -> None:
        """Say it, beside what was asked for."""
        for notice in self.list_notices():
            print_to_stderr(notice)


def load_team_context(repo: Path | None) -> TeamContext:
    """The place that is meant: the repository that was named, or the one around the current folder."""
    home = find_home_folder()
    folder = (repo or find_repo(Path.cwd(), home=home)).absolute()
    return TeamContext(folder, home, load_roster(folder, home))


def confirm_action(question: str, *, is_agreed: bool) -> None:
    """Ask the person at the terminal, who may have agreed with --yes. Raises Mistake where nobody can be asked."""
    if is_agreed:
        return
    from ..terminal.prompting import is_attended  # here, because nobody else asks

    if not is_attended():
        raise Mistake(f"{question} There is no terminal to ask at; --yes agrees to it")
    if not click.confirm(question, err=True):
        raise click.Abort
