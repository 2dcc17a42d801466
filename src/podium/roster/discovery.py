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

from ..system.locations import is_inside, is_same, shown
from ..values.agent import Agent, Source
from ..values.diagnostic import Finding, errors
from ..values.errors import BadAgent
from ..values.located_yaml import quoted
from . import agent_check
from .agent_file import Read, read
from .agent_name import RULE, is_name, joined, slug, there_are
from .workflow_graph import edges

# Found by its place and not through importlib.resources, whose import alone takes longer than
# reading all of these files; a wheel is always unpacked.
BUILT_IN = Path(__file__).parent.parent / "builtin" / "agents"
PREFIX: Mapping[Source, str] = {"built-in": "builtin", "user": "user", "repo": "repo"}
PRESETS = "presets.json"
SQUADS = (".squad", ".ai-team", ".squad.before", ".ai-team.before")
"""Where a repository's squad may be; the last two hold one while it is being replaced."""

Broken = tuple[Finding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A place that agents come from; one that is in a repository is not left by links."""

    path: Path
    source: Source
    suffix: str = ".md"
    foreign: bool = False
    repo: Path | None = None

    def shown(self, path: Path) -> str:
        """How a path in it is shown."""
        if self.source == "built-in":
            return f"podium/{path.relative_to(BUILT_IN.parent.parent).as_posix()}"
        return shown(path, repo=self.repo)

    def read(self, path: Path) -> Read:
        """What comes of reading a file in it."""
        name = self.shown(path)
        return read(path, source=self.source, foreign=self.foreign, path_shown=name, root=self.repo)


def folders(repo: Path | None, home: Path) -> tuple[Folder, ...]:
    """Where agents come from, later ones winning."""
    found = [Folder(path=BUILT_IN, source="built-in"), Folder(path=home / "agents", source="user")]
    if repo is not None:
        repo = repo.absolute()
        found.append(Folder(path=repo / ".claude" / "agents", source="repo", foreign=True, repo=repo))
        github = repo / ".github" / "agents"
        found.append(Folder(path=github, source="repo", foreign=True, repo=repo, suffix=".agent.md"))
        own = Folder(path=repo / ".podium" / "agents", source="repo", repo=repo)
        if not is_same(repo / ".podium", home):  # the person's own folder is no repository's
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
    broken: Mapping[str, Broken] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    placed: Mapping[str, Agent | Broken] = field(default_factory=dict)
    lines: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def get(self, name: str) -> Agent:
        """The agent of that name, which may also say its place, as `builtin:NAME` does, or be written as people do."""
        known = self.named(name)
        found = None if known is None else self._find(known)
        if isinstance(found, Agent):
            return found
        if found is None:
            raise BadAgent(f"there is no agent {quoted(name)}; {there_are(name, sorted(self.agents))}")
        raise BadAgent(_sentence(errors(found)))

    def named(self, name: str) -> str | None:
        """The name, on the roster, of who is called so: by that very name, as it is displayed, or by its slug.

        None where nobody is. Raises BadAgent where several are.
        """
        if name in self.agents or name in self.broken or name in self.placed:
            return name
        if not name.strip():
            return None
        place, colon, rest = name.partition(":")
        if colon and place in PREFIX.values():
            start = f"{place}:"
            there = {one.removeprefix(start): entry for one, entry in self.placed.items() if one.startswith(start)}
            found = [f"{start}{one}" for one in _called(rest, there)]
        else:
            found = _called(name, {**self.agents, **self.broken})
        if len(found) > 1:
            raise BadAgent(f"{quoted(name)} is what {joined(found)} are called; give the name of the one you mean")
        return found[0] if found else None

    def team(self, name: str, extra: Iterable[Agent] = ()) -> tuple[Agent, ...]:
        """The agent and everyone it needs, itself first, after checking that they fit together.

        `extra` are agents built in code, which win over files of the same name.
        """
        built = {agent.name: agent for agent in extra}
        for bad in (one for one in built if not is_name(one)):
            raise BadAgent(f"{quoted(bad)} cannot be an agent's name; a name has {RULE}")
        if name not in built:
            name = self.get(name).name
        team, broken = self._closure([name], built)
        wrong = [*errors(broken), *errors(self._fit(team, built))]
        if wrong:
            raise BadAgent(_sentence(wrong))
        return tuple(team.values())

    def check(self, names: Iterable[str] | None = None) -> tuple[Finding, ...]:
        """Everything that is wrong between the agents of these names and whom they need; between all without names."""
        if names is None:
            return self._fit(self._closure(self.agents, {})[0], {})
        team, broken = self._closure(names, {})
        return (*broken, *self._fit(team, {}))

    def under(self, held: Held) -> Roster:
        """This roster, with what `held` has winning by name."""
        agents = {name: entry for name, entry in held.entries.items() if isinstance(entry, Agent)}
        broken = {name: entry for name, entry in held.entries.items() if isinstance(entry, tuple)}
        others = {name: agent for name, agent in self.agents.items() if name not in broken}
        lines = {**self.lines, **held.lines}
        return replace(self, agents={**others, **agents}, broken={**self.broken, **broken}, lines=lines)

    def _fit(self, team: Mapping[str, Agent], built: Mapping[str, Agent]) -> tuple[Finding, ...]:
        """The findings of the checks, with the lines that the files tell."""
        known = {*self.agents, *built}
        broken = {*self.broken, *(name for name, entry in self.placed.items() if isinstance(entry, tuple))}
        return tuple(self._located(finding) for finding in agent_check.findings(team, known=known, broken=broken))

    def _closure(self, names: Iterable[str], built: Mapping[str, Agent]) -> tuple[dict[str, Agent], Broken]:
        """Everyone reached from `names`, and the findings of the broken files met on the way."""
        reached: dict[str, Agent] = {}
        broken: dict[str, Broken] = {}
        queue = list(names)
        for name in queue:
            found = built.get(name) or self._find(name)
            if isinstance(found, Agent) and name not in reached:
                reached[name] = found
                queue.extend(edge.name for edge in edges(found) if edge.name not in reached)
            elif isinstance(found, tuple):
                broken[name] = found
        return reached, tuple(finding for findings in broken.values() for finding in findings)

    def _find(self, name: str) -> Agent | Broken | None:
        """Who has that name; an agent found by its place goes by that longer name."""
        if name in self.agents:
            return self.agents[name]
        if name in self.broken:
            return self.broken[name]
        placed = self.placed.get(name)
        return structs.replace(placed, name=name) if isinstance(placed, Agent) else placed

    def _located(self, finding: Finding) -> Finding:
        """`finding` with the line of its key, or of the key around it."""
        lines = self.lines.get(finding.path, {})
        line = lines.get(finding.key) or lines.get(finding.key.split(".")[0])
        return structs.replace(finding, line=finding.line or line)


def _called(name: str, known: Mapping[str, Agent | Broken]) -> list[str]:
    """Those of `known` that are displayed so, else the one of that slug, else those displayed so in another case."""
    displayed = {own: entry.display_name for own, entry in known.items() if isinstance(entry, Agent)}
    made = slug(name)
    found = [own for own, display_name in displayed.items() if display_name == name]
    # Who has the name itself gave way to nobody, as others that are displayed so did.
    if made in found or (not found and made in known):
        return [made]
    return found or [own for own, display_name in displayed.items() if display_name.casefold() == name.casefold()]


def load(repo: Path | None, home: Path) -> Roster:
    """Every agent that ships with Podium, is the person's own (in `home`) or stands in the repository."""
    winners: dict[str, Agent | Broken] = {}
    placed: dict[str, Agent | Broken] = {}
    shadowed: list[Agent] = []
    findings: list[Finding] = []
    lines: dict[str, Mapping[str, int]] = {}
    for source, held in _held(repo, home):
        findings += held.findings
        lines |= held.lines
        for name, entry in held.entries.items():
            if isinstance(before := winners.get(name), Agent):
                shadowed.append(before)
            winners[name] = placed[f"{PREFIX[source]}:{name}"] = entry
    return Roster(
        agents={name: entry for name, entry in sorted(winners.items()) if isinstance(entry, Agent)},
        broken={name: entry for name, entry in sorted(winners.items()) if isinstance(entry, tuple)},
        shadowed=tuple(shadowed),
        findings=tuple(findings),
        placed=placed,
        lines=lines,
    )


def _held(repo: Path | None, home: Path) -> list[tuple[Source, Held]]:
    """What every place holds, later ones winning: files, and the teams of presets and of a squad."""
    files = [(folder, read_folder(folder)) for folder in folders(repo, home)]
    if not _keeps_teams(repo, home):
        return [(folder.source, held) for folder, held in files]
    from .squad_agents import bring  # here, because most have no such teams, and would pay for reading them

    brings = bring(repo, home, {name for _, held in files for name in held.entries})
    elsewhere = [(folder.source, held) for folder, held in files if folder.source != "repo"]
    foreign = [(folder.source, held) for folder, held in files if folder.source == "repo" and folder.foreign]
    own = [(folder.source, held) for folder, held in files if folder.source == "repo" and not folder.foreign]
    return [*elsewhere, ("user", _brought(*brings.mine)), *foreign, ("repo", _brought(*brings.ours)), *own]


def _keeps_teams(repo: Path | None, home: Path) -> bool:
    """Whether there may be a preset or a squad."""
    places = [home / PRESETS, *(repo / name for name in SQUADS if repo is not None)]
    return any(map(os.path.lexists, places))


def _brought(agents: Iterable[Agent], findings: tuple[Finding, ...], broken: Mapping[str, Broken]) -> Held:
    return Held(entries={**broken, **{agent.name: agent for agent in agents}}, findings=findings, lines={})


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a folder holds: its agents and broken files by name, and all findings about it."""

    entries: Mapping[str, Agent | Broken]
    findings: tuple[Finding, ...]
    lines: Mapping[str, Mapping[str, int]]


def read_folder(folder: Folder) -> Held:
    """Everything in `folder`; nothing where it does not exist."""
    try:
        return gathered(folder.read(path) for path in files(folder))
    except OSError as error:
        message = f"cannot be looked into: {error.strerror or error}"
        finding = Finding(severity="error", path=folder.shown(folder.path), message=message)
        return Held(entries={}, findings=(finding,), lines={})


def gathered(reads: Iterable[Read]) -> Held:
    """The files of one folder by the names of their agents; two of one name are both broken."""
    told: list[Finding] = []
    entries: dict[str, Agent | Broken] = {}
    first: dict[str, Read] = {}
    lines: dict[str, Mapping[str, int]] = {}
    for one in reads:
        told += one.findings
        lines[one.path] = one.lines
        if one.agent is None and not one.is_broken:
            continue
        if one.name in first:
            message = f"{one.name} is also the name of {first[one.name].path}; two names would be right"
            twice = Finding(severity="error", path=one.path, line=one.lines.get("name"), key="name", message=message)
            told.append(twice)
            entries[one.name] = (twice,)
        else:
            first[one.name] = one
            entries[one.name] = one.agent or one.findings
    return Held(entries=entries, findings=tuple(told), lines=lines)


def files(folder: Folder) -> list[Path]:
    """The agent files of `folder` in order of their names; hidden ones are other programs' own."""
    if folder.repo is not None and not is_inside(folder.path, folder.repo):
        raise OSError(0, "it leads out of the repository, where nothing is read")
    try:
        paths = sorted(folder.path.iterdir())
    except FileNotFoundError:
        return []
    return [path for path in paths if path.name.endswith(folder.suffix) and not path.name.startswith(".")]


def _sentence(wrong: Iterable[Finding]) -> str:
    """The first error, and how many more there are."""
    first, *more = wrong
    return f"{first} (and {len(more)} more; podium check shows all)" if more else f"{first}"
