"""Load the roster: all agents with their sources, and which agent takes effect if several have the same name.

The repository's agents override the user's own, and both override built-in agents. Loading does not check how
agents refer to each other: `Roster.resolve_team` checks the agents of a run, and `check_path` those at a path.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec import structs

from ..system.locations import REPO_MARKERS, find_repo, format_path, is_inside, is_same_file
from ..values.agent import Agent, Source
from ..values.errors import BadAgent, Diagnostic, filter_errors, summarise_errors
from ..values.located_yaml import quote_text
from ..values.plain_text import join_words
from . import agent_check
from .agent_file import AgentFile, read_agent_file
from .agent_name import NAME_RULE, is_agent_name, suggest_names, to_agent_name
from .workflow_graph import iter_edges

# Located by path instead of importlib.resources: importing that takes longer than reading all these
# files, and an installed wheel is always unpacked.
BUILTIN_AGENTS = Path(__file__).parent.parent / "builtin" / "agents"
SOURCE_PREFIXES: Mapping[Source, str] = {"built-in": "builtin", "user": "user", "repo": "repo"}
PRESETS_FILE = "presets.json"
SQUAD_FOLDERS = (".squad", ".ai-team", ".squad.before", ".ai-team.before")
"""Folders where a repository's squad may be. The last two exist while a squad is being replaced, or if that failed."""

BrokenAgent = tuple[Diagnostic, ...]
CheckMore = Callable[[Iterable[Agent]], Iterable[Diagnostic]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A folder of agent files. Links that lead out of `repo` are not followed."""

    path: Path
    source: Source
    suffix: str = ".md"
    foreign: bool = False
    repo: Path | None = None

    def format_path(self, path: Path) -> str:
        """Return a path in this folder in the form that messages use."""
        if self.source == "built-in":
            return f"podium/{path.relative_to(BUILTIN_AGENTS.parent.parent).as_posix()}"
        return format_path(path, repo=self.repo)

    def read_file(self, path: Path) -> AgentFile:
        """Read an agent file in this folder."""
        name = self.format_path(path)
        return read_agent_file(path, source=self.source, foreign=self.foreign, display_path=name, root=self.repo)


def list_agent_folders(repo: Path | None, home: Path) -> tuple[Folder, ...]:
    """Return the folders that agents are loaded from; later folders override earlier ones."""
    found = [Folder(path=BUILTIN_AGENTS, source="built-in"), Folder(path=home / "agents", source="user")]
    if repo is not None:
        repo = repo.absolute()
        found.append(Folder(path=repo / ".claude" / "agents", source="repo", foreign=True, repo=repo))
        github = repo / ".github" / "agents"
        found.append(Folder(path=github, source="repo", foreign=True, repo=repo, suffix=".agent.md"))
        own = Folder(path=repo / ".podium" / "agents", source="repo", repo=repo)
        if not is_same_file(repo / ".podium", home):  # in the home directory, .podium is Podium's home
            found.append(own)
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """All agents, keyed by name, and the diagnostics about their files.

    `agents` contains the agents in effect, and `shadowed` contains the agents that another agent overrides. If the
    definition in effect has errors, the agent is not in `agents`; instead, `broken` maps its name to its diagnostics.
    `by_qualified_name` maps `builtin:NAME`, `user:NAME` and `repo:NAME` to the agent with that name in that source,
    even if another source overrides it. `lines` maps each path to the lines of its keys.
    """

    agents: Mapping[str, Agent]
    shadowed: tuple[Agent, ...] = ()
    broken: Mapping[str, BrokenAgent] = field(default_factory=dict)
    diagnostics: tuple[Diagnostic, ...] = ()
    by_qualified_name: Mapping[str, Agent | BrokenAgent] = field(default_factory=dict)
    lines: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def get(self, name: str) -> Agent:
        """Return an agent by name, qualified name (`builtin:NAME`) or display name.

        Raise BadAgent if there is no such agent, if there are several, or if the agent has errors.
        """
        known = self.resolve_name(name)
        found = None if known is None else self._find_agent(known)
        if isinstance(found, Agent):
            return found
        if found is None:
            raise BadAgent(f"agent {quote_text(name)} not found; {suggest_names(name, sorted(self.agents))}")
        raise BadAgent(summarise_errors(filter_errors(found), command="podium check"))

    def resolve_name(self, name: str) -> str | None:
        """Return the roster's name for an agent, given its name, qualified name or display name.

        Return None if there is no such agent. Raise BadAgent if there are several.
        """
        if name in self.agents or name in self.broken or name in self.by_qualified_name:
            return name
        if not name.strip():
            return None
        place, colon, rest = name.partition(":")
        if colon and place in SOURCE_PREFIXES.values():
            start = f"{place}:"
            there = {
                one.removeprefix(start): entry for one, entry in self.by_qualified_name.items() if one.startswith(start)
            }
            found = [f"{start}{one}" for one in _find_matching_names(rest, there)]
        else:
            found = _find_matching_names(name, {**self.agents, **self.broken})
        if len(found) > 1:
            raise BadAgent(f"{quote_text(name)} is ambiguous: it matches {join_words(found)}; use one of these names")
        return found[0] if found else None

    def resolve_team(self, name: str, extra: Iterable[Agent] = ()) -> tuple[Agent, ...]:
        """Check an agent and all agents that it needs, and return them. The agent itself comes first.

        `extra` contains agents built in code; they override files of the same name. Raise BadAgent if an agent is
        missing or has an error.
        """
        built = {agent.name: agent for agent in extra}
        for bad in (one for one in built if not is_agent_name(one)):
            raise BadAgent(f"invalid agent name {quote_text(bad)}; use {NAME_RULE}")
        if name not in built:
            name = self.get(name).name
        team, broken = self._collect_reachable([name], built)
        wrong = [*filter_errors(broken), *filter_errors(self._check_agents(team, built))]
        if wrong:
            raise BadAgent(summarise_errors(wrong, command="podium check"))
        return tuple(team.values())

    def check(self, names: Iterable[str] | None = None) -> tuple[Diagnostic, ...]:
        """Check the named agents and the agents they need, and return the diagnostics.

        If `names` is None, check all agents, but do not return the errors that were found when the agents were loaded.
        The attribute `diagnostics` already contains those errors.
        """
        if names is None:
            return self._check_agents(self._collect_reachable(self.agents, {})[0], {})
        team, broken = self._collect_reachable(names, {})
        return (*broken, *self._check_agents(team, {}))

    def with_overrides(self, overrides: AgentCollection) -> Roster:
        """Return this roster with the entries of `overrides` added. These replace entries with the same name.

        Qualified names refer to the same agents as before.
        """
        agents = {name: entry for name, entry in overrides.entries.items() if isinstance(entry, Agent)}
        broken = {name: entry for name, entry in overrides.entries.items() if isinstance(entry, tuple)}
        others = {name: agent for name, agent in self.agents.items() if name not in broken}
        lines = {**self.lines, **overrides.lines}
        return replace(self, agents={**others, **agents}, broken={**self.broken, **broken}, lines=lines)

    def _check_agents(self, team: Mapping[str, Agent], built: Mapping[str, Agent]) -> tuple[Diagnostic, ...]:
        """Run the checks and add line numbers to their diagnostics."""
        known = {*self.agents, *built}
        broken = {*self.broken, *(name for name, entry in self.by_qualified_name.items() if isinstance(entry, tuple))}
        return tuple(
            self.with_line(diagnostic) for diagnostic in agent_check.check_agents(team, known=known, broken=broken)
        )

    def _collect_reachable(
        self, names: Iterable[str], built: Mapping[str, Agent]
    ) -> tuple[dict[str, Agent], BrokenAgent]:
        """Return all agents reachable from `names`, and the diagnostics for broken files among them."""
        reached: dict[str, Agent] = {}
        broken: dict[str, BrokenAgent] = {}
        queue = list(names)
        for name in queue:
            found = built.get(name) or self._find_agent(name)
            if isinstance(found, Agent) and name not in reached:
                reached[name] = found
                queue.extend(edge.name for edge in iter_edges(found) if edge.name not in reached)
            elif isinstance(found, tuple):
                broken[name] = found
        return reached, tuple(diagnostic for diagnostics in broken.values() for diagnostic in diagnostics)

    def _find_agent(self, name: str) -> Agent | BrokenAgent | None:
        """Find an agent by name. If `name` is qualified, the returned agent has the qualified name."""
        if name in self.agents:
            return self.agents[name]
        if name in self.broken:
            return self.broken[name]
        entry = self.by_qualified_name.get(name)
        return structs.replace(entry, name=name) if isinstance(entry, Agent) else entry

    def with_line(self, diagnostic: Diagnostic) -> Diagnostic:
        """Return the diagnostic with a line number: its own, or else that of its key or its top-level key."""
        lines = self.lines.get(diagnostic.path, {})
        line = lines.get(diagnostic.key) or lines.get(diagnostic.key.split(".")[0])
        return structs.replace(diagnostic, line=diagnostic.line or line)


def _find_matching_names(name: str, known: Mapping[str, Agent | BrokenAgent]) -> list[str]:
    """Return the names of the agents that match `name`.

    Display names equal to `name` are tried first, then the slug of `name`, then display names ignoring case.
    """
    displayed = {own: entry.display_name for own, entry in known.items() if isinstance(entry, Agent)}
    made = to_agent_name(name)
    found = [own for own, display_name in displayed.items() if display_name == name]
    # Of several agents with this display name, the one whose own name is the slug of `name` takes precedence.
    if made in found or (not found and made in known):
        return [made]
    return found or [own for own, display_name in displayed.items() if display_name.casefold() == name.casefold()]


def load_roster(repo: Path | None, home: Path) -> Roster:
    """Load all agents: built-in ones, the user's own (in `home`) and the repository's."""
    winners: dict[str, Agent | BrokenAgent] = {}
    by_qualified_name: dict[str, Agent | BrokenAgent] = {}
    shadowed: list[Agent] = []
    diagnostics: list[Diagnostic] = []
    lines: dict[str, Mapping[str, int]] = {}
    for source, collection in _read_all_sources(repo, home):
        diagnostics += collection.diagnostics
        lines |= collection.lines
        for name, entry in collection.entries.items():
            if isinstance(before := winners.get(name), Agent):
                shadowed.append(before)
            winners[name] = by_qualified_name[f"{SOURCE_PREFIXES[source]}:{name}"] = entry
    return Roster(
        agents={name: entry for name, entry in sorted(winners.items()) if isinstance(entry, Agent)},
        broken={name: entry for name, entry in sorted(winners.items()) if isinstance(entry, tuple)},
        shadowed=tuple(shadowed),
        diagnostics=tuple(diagnostics),
        by_qualified_name=by_qualified_name,
        lines=lines,
    )


def _read_all_sources(repo: Path | None, home: Path) -> list[tuple[Source, AgentCollection]]:
    """Read the agents from files, presets and the repository's squad, each with its source, lowest precedence first."""
    files = [(folder, read_folder(folder)) for folder in list_agent_folders(repo, home)]
    if not _may_have_teams(repo, home):
        return [(folder.source, collection) for folder, collection in files]
    from .squad_agents import load_team_agents  # imported here for start-up time: most users have no such teams

    team_agents = load_team_agents(repo, home, {name for _, collection in files for name in collection.entries})
    elsewhere = [(folder.source, collection) for folder, collection in files if folder.source != "repo"]
    foreign = [
        (folder.source, collection) for folder, collection in files if folder.source == "repo" and folder.foreign
    ]
    own = [
        (folder.source, collection) for folder, collection in files if folder.source == "repo" and not folder.foreign
    ]
    return [
        *elsewhere,
        ("user", _collect_team_agents(*team_agents.from_presets)),
        *foreign,
        ("repo", _collect_team_agents(*team_agents.from_squad)),
        *own,
    ]


def _may_have_teams(repo: Path | None, home: Path) -> bool:
    """Return whether a presets file or a squad folder exists."""
    places = [home / PRESETS_FILE, *(repo / name for name in SQUAD_FOLDERS if repo is not None)]
    return any(map(os.path.lexists, places))


def _collect_team_agents(
    agents: Iterable[Agent], diagnostics: tuple[Diagnostic, ...], broken: Mapping[str, BrokenAgent]
) -> AgentCollection:
    return AgentCollection(
        entries={**broken, **{agent.name: agent for agent in agents}}, diagnostics=diagnostics, lines={}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCollection:
    """Agents from one source, keyed by name, and diagnostics. A broken agent is represented by its diagnostics."""

    entries: Mapping[str, Agent | BrokenAgent]
    diagnostics: tuple[Diagnostic, ...]
    lines: Mapping[str, Mapping[str, int]]


def read_folder(folder: Folder) -> AgentCollection:
    """Read all agent files in `folder`. A missing folder counts as empty.

    If the folder cannot be listed, the result contains an error.
    """
    try:
        return _collect_agents(folder.read_file(path) for path in list_agent_files(folder))
    except OSError as error:
        message = f"cannot list this folder: {error.strerror or error}"
        diagnostic = Diagnostic(severity="error", path=folder.format_path(folder.path), message=message)
        return AgentCollection(entries={}, diagnostics=(diagnostic,), lines={})


def _collect_agents(reads: Iterable[AgentFile]) -> AgentCollection:
    """Collect agents, keyed by name. If several files use the same name, the entry for that name is broken."""
    diagnostics: list[Diagnostic] = []
    entries: dict[str, Agent | BrokenAgent] = {}
    first: dict[str, AgentFile] = {}
    lines: dict[str, Mapping[str, int]] = {}
    for one in reads:
        diagnostics += one.diagnostics
        lines[one.path] = one.lines
        if one.agent is None and not one.is_broken:
            continue
        if one.name in first:
            message = f"{one.name} is already the name of the agent in {first[one.name].path}; choose another name"
            twice = Diagnostic(severity="error", path=one.path, line=one.lines.get("name"), key="name", message=message)
            diagnostics.append(twice)
            entries[one.name] = (twice,)
        else:
            first[one.name] = one
            entries[one.name] = one.agent or one.diagnostics
    return AgentCollection(entries=entries, diagnostics=tuple(diagnostics), lines=lines)


def list_agent_files(folder: Folder) -> list[Path]:
    """Return the agent files in `folder`, sorted by name. Hidden files are skipped: they belong to other programs.

    Raise OSError if the folder exists but cannot be listed, or is outside the repository.
    """
    if folder.repo is not None and not is_inside(folder.path, folder.repo):
        raise OSError(0, "it is outside the repository and is not read")
    try:
        paths = sorted(folder.path.iterdir())
    except FileNotFoundError:
        return []
    return [path for path in paths if path.name.endswith(folder.suffix) and not path.name.startswith(".")]


FOREIGN_FOLDERS = (".claude", ".github", ".squad", ".ai-team")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """The number of agents without errors in their files, and all diagnostics, sorted by file and line."""

    agent_count: int
    diagnostics: tuple[Diagnostic, ...]


def check_path(path: Path, home: Path, check_more: CheckMore = lambda agents: ()) -> CheckReport:
    """Check the repository, folder or file at `path`. References to agents outside `path` are resolved.

    `check_more` returns further diagnostics about valid agents.
    """
    path = path.absolute()
    if path.is_dir() and any((path / mark).exists() for mark in (*REPO_MARKERS, *FOREIGN_FOLDERS)):
        roster = load_roster(path, home)
        more = map(roster.with_line, check_more(roster.agents.values()))
        return _build_report(len(roster.agents), (*roster.diagnostics, *roster.check(), *more))
    inside = path if path.is_dir() else path.parent
    repo = find_repo(inside, home=home)
    suffix = ".agent.md" if inside.parent.name == ".github" else ".md"
    folder = Folder(path=inside, source="repo", foreign=inside.parent.name in FOREIGN_FOLDERS, repo=repo, suffix=suffix)
    collection = read_folder(folder) if path.is_dir() else _collect_agents([folder.read_file(path)])
    roster = load_roster(repo, home).with_overrides(collection)
    agents = [entry for entry in collection.entries.values() if isinstance(entry, Agent)]
    more = map(roster.with_line, check_more(agents))
    return _build_report(len(agents), (*collection.diagnostics, *roster.check(collection.entries), *more))


def _build_report(agent_count: int, diagnostics: tuple[Diagnostic, ...]) -> CheckReport:
    """Build the report, with the diagnostics sorted by file and line and without duplicates."""
    ordered = sorted(dict.fromkeys(diagnostics), key=lambda finding: (finding.path, finding.line or 0))
    return CheckReport(agent_count=agent_count, diagnostics=tuple(ordered))
