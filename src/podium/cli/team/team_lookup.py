"""Where the `team` commands look: a repository, the person's own folder, and all agents of both."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import click

from ...roster.discovery import PRESETS, SQUADS, Roster, load
from ...setup.settings import home_folder
from ...system.locations import find_repo, shown
from ...values.errors import Mistake
from ..terminal.say import say


class Place(NamedTuple):
    """A repository and the person's own folder, with everyone in them."""

    repo: Path
    home: Path
    roster: Roster

    def notices(self) -> list[str]:
        """What is to be said about presets and squads; who gave way to another's name is seen in the list of agents."""
        own = shown(self.home / PRESETS)
        return [
            f"{finding.severity}: {finding}"
            for finding in self.roster.findings
            if finding.key != "members" and (finding.path == own or finding.path.split("/")[0] in SQUADS)
        ]

    def tell(self) -> None:
        """Say it, beside what was asked for."""
        for notice in self.notices():
            say(notice)


def place(repo: Path | None) -> Place:
    """The place that is meant: the repository that was named, or the one around the current folder."""
    home = home_folder()
    folder = (repo or find_repo(Path.cwd(), home=home)).absolute()
    return Place(folder, home, load(folder, home))


def must_agree(question: str, *, is_agreed: bool) -> None:
    """Ask the person at the terminal, who may have agreed with --yes. Raises Mistake where nobody can be asked."""
    if is_agreed:
        return
    from ..terminal.attendance import is_attended  # here, because nobody else asks

    if not is_attended():
        raise Mistake(f"{question} There is no terminal to ask at; --yes agrees to it")
    if not click.confirm(question, err=True):
        raise click.Abort
