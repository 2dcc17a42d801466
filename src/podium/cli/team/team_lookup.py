"""Load the repository, the home folder and the available agents, for `podium team` and `podium teams`."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ...files.discovery import PRESETS_FILE, SQUAD_FOLDERS, Roster, load_roster
from ...files.team_definition import find_overridden_builtin
from ...system.locations import find_home_folder, find_repo, format_path
from ..terminal.text import print_to_stderr


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


def load_team_context(repo: Path | None) -> TeamContext:
    """Load the context for the given repository, or for the one that contains the current folder."""
    home = find_home_folder()
    folder = (repo or find_repo(Path.cwd(), home=home)).absolute()
    return TeamContext(folder, home, load_roster(folder, home))


def print_overridden_builtin(name: str, context: TeamContext) -> None:
    """Print the qualified name of the built-in agent that a saved team overrides, if any."""
    if builtin := find_overridden_builtin(name, context.roster):
        print_to_stderr(f"note: {name} now refers to this team; the built-in one is still available as {builtin}")
