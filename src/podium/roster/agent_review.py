"""A review: everything there is to say about the agents at a path, be it a repository, a folder or one file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..system.locations import REPO_MARKERS, find_repo
from ..values.agent import Agent
from ..values.diagnostic import Diagnostic
from .discovery import Folder, collect_agents, load_roster, read_folder

FOREIGN_FOLDERS = (".claude", ".github", ".squad", ".ai-team")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """How many agents can be read, and all findings in the order of the files."""

    agent_count: int
    diagnostics: tuple[Diagnostic, ...]


def check_path(path: Path, home: Path) -> CheckReport:
    """What is wrong at `path`; a folder or file is checked together with the agents around it."""
    path = path.absolute()
    if path.is_dir() and any((path / mark).exists() for mark in (*REPO_MARKERS, *FOREIGN_FOLDERS)):
        roster = load_roster(path, home)
        return _build_report(len(roster.agents), (*roster.diagnostics, *roster.check()))
    inside = path if path.is_dir() else path.parent
    repo = find_repo(inside, home=home)
    suffix = ".agent.md" if inside.parent.name == ".github" else ".md"
    folder = Folder(path=inside, source="repo", foreign=inside.parent.name in FOREIGN_FOLDERS, repo=repo, suffix=suffix)
    collection = read_folder(folder) if path.is_dir() else collect_agents([folder.read_file(path)])
    roster = load_roster(repo, home).with_overrides(collection)
    agents = sum(isinstance(entry, Agent) for entry in collection.entries.values())
    return _build_report(agents, (*collection.diagnostics, *roster.check(collection.entries)))


def _build_report(agent_count: int, diagnostics: tuple[Diagnostic, ...]) -> CheckReport:
    """The findings by file and line, each once."""
    ordered = sorted(dict.fromkeys(diagnostics), key=lambda finding: (finding.path, finding.line or 0))
    return CheckReport(agent_count=agent_count, diagnostics=tuple(ordered))
