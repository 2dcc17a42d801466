"""The roster: every agent there is, from which place each comes, and which of one name wins.

Later places win by name: what ships with Podium, then the person's own, then the repository's.
Loading reads agent files and nothing else; whether agents fit together is checked when they are used.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec import structs

from ..system.locations import REPO_MARKERS, find_repo, format_path, is_inside, is_same_file
from ..values.agent import Agent, Source
from ..values.diagnostic import Diagnostic, filter_errors
from ..values.errors import BadAgent
from ..values.located_yaml import quote_text
from . import agent_check
from .agent_file import AgentFile, read_agent_file
from .agent_name import NAME_RULE, is_agent_name, join_words, suggest_names, to_agent_name
from .workflow_graph import iter_edges

# Found by its place and not through importlib.resources, whose import alone takes longer than
# reading all of these files; a wheel is always unpacked.
BUILTIN_AGENTS = Path(__file__).parent.parent / "builtin" / "agents"
SOURCE_PREFIXES: Mapping[Source, str] = {"built-in": "builtin", "user": "user", "repo": "repo"}
PRESETS_FILE = "presets.json"
SQUAD_FOLDERS = (".squad", ".ai-team", ".squad.before", ".ai-team.before")
"""Where a repository's squad may be; the last two hold one while it is being replaced."""

BrokenAgent = tuple[Diagnostic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A place that agents come from; one that is in a repository is not left by links."""

    path: Path
    source: Source
    suffix: str = ".md"
    foreign: bool = False
    repo: Path | None = None

    def format_path(self, path: Path) -> str:
        """How a path in it is shown."""
        if self.source == "built-in":
            return f"podium/{path.relative_to(BUILTIN_AGENTS.parent.parent).as_posix()}"
        return format_path(path, repo=self.repo)

    def read_file(self, path: Path) -> AgentFile:
        """What comes of reading a file in it."""
        name = self.format_path(path)
        return read_agent_file(path, source=self.source, foreign=self.foreign, display_path=name, root=self.repo)


def list_agent_folders(repo: Path | None, home: Path) -> tuple[Folder, ...]:
    """Where agents come from, later ones winning."""
    found = [Folder(path=BUILTIN_AGENTS, source="built-in"), Folder(path=home / "agents", source="user")]
    if repo is not None:
        repo = repo.absolute()
        found.append(Folder(path=repo / ".claude" / "agents", source="repo", foreign=True, repo=repo))
        github = repo / ".github" / "agents"
        found.append(Folder(path=github, source="repo", foreign=True, repo=repo, suffix=".agent.md"))
        own = Folder(path=repo / ".podium" / "agents", source="repo", repo=repo)
        if not is_same_file(repo / ".podium", home):  # the person's own folder is no repository's
            found.append(own)
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Roster:
    """All agents by name, with what has to be said about their files.

    `agents` are those that win, `shadowed` those that do not, `broken` the names whose winning file
    has errors. `placed` has every agent of a place, shadowed or not, as `builtin:NAME`, `user:NAME`
    or `repo:NAME`; `lines` tells by path where each key of a file stands.
    """

    agents: Mapping[str, Agent]
    shadowed: tuple[Agent, ...] = ()
    broken: Mapping[str, BrokenAgent] = field(default_factory=dict)
    diagnostics: tuple[Diagnostic, ...] = ()
    by_qualified_name: Mapping[str, Agent | BrokenAgent] = field(default_factory=dict)
    lines: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def get(self, name: str) -> Agent:
        """The agent of that name, which may also say its place, as `builtin:NAME` does, or be written as people do."""
        known = self.resolve_name(name)
        found = None if known is None else self._find_agent(known)
        if isinstance(found, Agent):
            return found
        if found is None:
            raise BadAgent(f"there is no agent {quote_text(name)}; {suggest_names(name, sorted(self.agents))}")
        raise BadAgent(_summarise_errors(filter_errors(found)))

    def resolve_name(self, name: str) -> str | None:
        """The name, on the roster, of who is called so: by that very name, as it is displayed, or by its slug.

        None where nobody is. Raises BadAgent where several are.
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
            raise BadAgent(
                f"{quote_text(name)} is what {join_words(found)} are called; give the name of the one you mean"
            )
        return found[0] if found else None

    def resolve_team(self, name: str, extra: Iterable[Agent] = ()) -> tuple[Agent, ...]:
        """The agent and everyone it needs, itself first, after checking that they fit together.

        `extra` are agents built in code, which win over files of the same name.
        """
        built = {agent.name: agent for agent in extra}
        for bad in (one for one in built if not is_agent_name(one)):
            raise BadAgent(f"{quote_text(bad)} cannot be an agent's name; a name has {NAME_RULE}")
        if name not in built:
            name = self.get(name).name
        team, broken = self._collect_reachable([name], built)
        wrong = [*filter_errors(broken), *filter_errors(self._check_agents(team, built))]
        if wrong:
            raise BadAgent(_summarise_errors(wrong))
        return tuple(team.values())

    def check(self, names: Iterable[str] | None = None) -> tuple[Diagnostic, ...]:
        """Everything that is wrong between the agents of these names and whom they need; between all without names."""
        if names is None:
            return self._check_agents(self._collect_reachable(self.agents, {})[0], {})
        team, broken = self._collect_reachable(names, {})
        return (*broken, *self._check_agents(team, {}))

    def with_overrides(self, overrides: AgentCollection) -> Roster:
        """This roster, with what `held` has winning by name."""
        agents = {name: entry for name, entry in overrides.entries.items() if isinstance(entry, Agent)}
        broken = {name: entry for name, entry in overrides.entries.items() if isinstance(entry, tuple)}
        others = {name: agent for name, agent in self.agents.items() if name not in broken}
        lines = {**self.lines, **overrides.lines}
        return replace(self, agents={**others, **agents}, broken={**self.broken, **broken}, lines=lines)

    def _check_agents(self, team: Mapping[str, Agent], built: Mapping[str, Agent]) -> tuple[Diagnostic, ...]:
        """The findings of the checks, with the lines that the files tell."""
        known = {*self.agents, *built}
        broken = {*self.broken, *(name for name, entry in self.by_qualified_name.items() if isinstance(entry, tuple))}
        return tuple(
            self._with_line(diagnostic) for diagnostic in agent_check.check_agents(team, known=known, broken=broken)
        )

    def _collect_reachable(
        self, names: Iterable[str], built: Mapping[str, Agent]
    ) -> tuple[dict[str, Agent], BrokenAgent]:
        """Everyone reached from `names`, and the findings of the broken files met on the way."""
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
        """Who has that name; an agent found by its place goes by that longer name."""
        if name in self.agents:
            return self.agents[name]
        if name in self.broken:
            return self.broken[name]
        entry = self.by_qualified_name.get(name)
        return structs.replace(entry, name=name) if isinstance(entry, Agent) else entry

    def _with_line(self, diagnostic: Diagnostic) -> Diagnostic:
        """`finding` with the line of its key, or of the key around it."""
        lines = self.lines.get(diagnostic.path, {})
        line = lines.get(diagnostic.key) or lines.get(diagnostic.key.split(".")[0])
        return structs.replace(diagnostic, line=diagnostic.line or line)


def _find_matching_names(name: str, known: Mapping[str, Agent | BrokenAgent]) -> list[str]:
    """Those of `known` that are displayed so, else the one of that slug, else those displayed so in another case."""
    displayed = {own: entry.display_name for own, entry in known.items() if isinstance(entry, Agent)}
    made = to_agent_name(name)
    found = [own for own, display_name in displayed.items() if display_name == name]
    # Who has the name itself gave way to nobody, as others that are displayed so did.
    if made in found or (not found and made in known):
        return [made]
    return found or [own for own, display_name in displayed.items() if display_name.casefold() == name.casefold()]


def load_roster(repo: Path | None, home: Path) -> Roster:
    """Every agent that ships with Podium, is the person's own (in `home`) or stands in the repository."""
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
    """What every place holds, later ones winning: files, and the teams of presets and of a squad."""
    files = [(folder, read_folder(folder)) for folder in list_agent_folders(repo, home)]
    if not _may_have_teams(repo, home):
        return [(folder.source, collection) for folder, collection in files]
    from .squad_agents import load_team_agents  # here, because most have no such teams, and would pay for reading them

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
    """Whether there may be a preset or a squad."""
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
    """What a folder holds: its agents and broken files by name, and all findings about it."""

    entries: Mapping[str, Agent | BrokenAgent]
    diagnostics: tuple[Diagnostic, ...]
    lines: Mapping[str, Mapping[str, int]]


def read_folder(folder: Folder) -> AgentCollection:
    """Everything in `folder`; nothing where it does not exist."""
    try:
        return collect_agents(folder.read_file(path) for path in list_agent_files(folder))
    except OSError as error:
        message = f"cannot be looked into: {error.strerror or error}"
        diagnostic = Diagnostic(severity="error", path=folder.format_path(folder.path), message=message)
        return AgentCollection(entries={}, diagnostics=(diagnostic,), lines={})


def collect_agents(reads: Iterable[AgentFile]) -> AgentCollection:
    """The files of one folder by the names of their agents; two of one name are both broken."""
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
            message = f"{one.name} is also the name of {first[one.name].path}; two names would be right"
            twice = Diagnostic(severity="error", path=one.path, line=one.lines.get("name"), key="name", message=message)
            diagnostics.append(twice)
            entries[one.name] = (twice,)
        else:
            first[one.name] = one
            entries[one.name] = one.agent or one.diagnostics
    return AgentCollection(entries=entries, diagnostics=tuple(diagnostics), lines=lines)


def list_agent_files(folder: Folder) -> list[Path]:
    """The agent files of `folder` in order of their names; hidden ones are other programs' own."""
    if folder.repo is not None and not is_inside(folder.path, folder.repo):
        raise OSError(0, "it leads out of the repository, where nothing is read")
    try:
        paths = sorted(folder.path.iterdir())
    except FileNotFoundError:
        return []
    return [path for path in paths if path.name.endswith(folder.suffix) and not path.name.startswith(".")]


def _summarise_errors(wrong: Iterable[Diagnostic]) -> str:
    """The first error, and how many more there are."""
    first, *more = wrong
    return f"{first} (and {len(more)} more; podium check shows all)" if more else f"{first}"


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
