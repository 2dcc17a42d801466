"""A review: everything there is to say about the agents at a path, be it a repository, a folder or one file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..system.locations import MARKS, find_repo
from ..values.agent import Agent
from ..values.diagnostic import Finding
from .discovery import Folder, gathered, load, read_folder

FOREIGN = (".claude", ".github", ".squad", ".ai-team")


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """How many agents can be read, and all findings in the order of the files."""

    agents: int
    findings: tuple[Finding, ...]


def review(path: Path, home: Path) -> Review:
    """What is wrong at `path`; a folder or file is checked together with the agents around it."""
    path = path.absolute()
    if path.is_dir() and any((path / mark).exists() for mark in (*MARKS, *FOREIGN)):
        roster = load(path, home)
        return _ordered(len(roster.agents), (*roster.findings, *roster.check()))
    inside = path if path.is_dir() else path.parent
    repo = find_repo(inside, home=home)
    suffix = ".agent.md" if inside.parent.name == ".github" else ".md"
    folder = Folder(path=inside, source="repo", foreign=inside.parent.name in FOREIGN, repo=repo, suffix=suffix)
    held = read_folder(folder) if path.is_dir() else gathered([folder.read(path)])
    roster = load(repo, home).under(held)
    agents = sum(isinstance(entry, Agent) for entry in held.entries.values())
    return _ordered(agents, (*held.findings, *roster.check(held.entries)))


def _ordered(agents: int, findings: tuple[Finding, ...]) -> Review:
    """The findings by file and line, each once."""
    ordered = sorted(dict.fromkeys(findings), key=lambda finding: (finding.path, finding.line or 0))
    return Review(agents=agents, findings=tuple(ordered))
