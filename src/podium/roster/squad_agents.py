"""The agents of squads and presets: a lead for each team, and one agent for each of its members.

A lead goes by the team's name, and hides other agents as a file of that name would. Members give way:
one whose name another agent has gets the lead's name in front, and keeps its own inside of the team.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec import structs

from ..system.locations import shown
from ..values.agent import Agent, Member, Source, Team
from ..values.diagnostic import Finding
from ..values.errors import Mistake
from ..values.located_yaml import quoted
from . import presets
from .agent_name import LONGEST, joined, slug
from .presets import Flawed, Preset
from .squad import examine
from .squad.charter import LONGEST_PROMPT, generic
from .squad.squad_folder import LONGEST_CONTEXT, SQUAD, TEAM

READING = ("read_file", "glob", "grep", "git_diff", "ask_person", "report_status")
"""What an agent is offered whose file names no tools."""

WORKING = (*READING, "write_file", "edit_file", "bash", "run_checks")
"""What a worker is offered whose team names no tools for it: a team is made of those who do the work."""

WITHOUT_TASKS = ("broadcast", "sequential", "discuss")
"""Modes in which members get the request itself, so that what the team shares has to stand in their prompts."""

LEADING = (
    "You lead the team {name}. Give each part of a request to the member whose role fits it best, "
    "and answer from what the members bring back."
)
UNNAMED = "team"
MOST_NAMED = 6

_MODEL = re.compile(r"[\w.:/@+-]+")


class Brought(NamedTuple):
    """What a place of teams brings to the roster, and what is to be said about it; `broken` are leads by name."""

    agents: tuple[Agent, ...] = ()
    findings: tuple[Finding, ...] = ()
    broken: Mapping[str, tuple[Finding, ...]] = MappingProxyType({})


class Brings(NamedTuple):
    """What the person's presets and the repository's squad bring."""

    mine: Brought
    ours: Brought


class _Place(NamedTuple):
    """Where a team is kept, and the name of its lead. `hidden` are members whom those of the same team hide."""

    source: Source
    path: str
    lead: str
    hidden: frozenset[str] = frozenset()


def bring(repo: Path | None, home: Path, taken: Collection[str]) -> Brings:
    """The agents of all teams; `taken` are the names that agents of files have. Reads, and runs nothing."""
    names = {*taken}
    kept, findings = _kept(home)
    leads = _leads(kept)
    names |= {*leads}
    ours = Brought() if repo is None else _of_squad(repo.absolute(), names)
    return Brings(_of_presets(home, kept, leads, names, findings, ours), ours)


def _of_squad(repo: Path, names: set[str]) -> Brought:
    """The agents of the repository's squad; `names` gets theirs."""
    found = examine(repo)
    if found.team is None:
        return Brought(findings=_notices(found.notices, SQUAD))
    assert found.team.source is not None
    place = _Place("repo", shown(found.team.source / TEAM, repo=repo), slug(found.team.name) or UNNAMED)
    names.add(place.lead)
    brought = _agents(presets.of_team(found.team), place, names)
    told = _notices(found.notices, shown(found.team.source, repo=repo))
    return Brought(brought.agents, (*told, *brought.findings))


def _kept(home: Path) -> tuple[tuple[Preset | Flawed, ...], tuple[Finding, ...]]:
    """The presets, and what is wrong with their file."""
    path = shown(home / presets.FILE)
    try:
        found = presets.load(home)
    except Mistake as mistake:
        return (), (Finding(severity="error", path=path, message=str(mistake).removeprefix(f"{home / presets.FILE} ")),)
    return found.entries, _notices(found.notices, path)


def _leads(kept: Iterable[Preset | Flawed]) -> list[str]:
    """The names of the presets' leads, each its own."""
    found: list[str] = []
    for preset in kept:
        found.append(_numbered(slug(preset.name) or UNNAMED, found))
    return found


def _of_presets(
    home: Path,
    kept: Sequence[Preset | Flawed],
    leads: Sequence[str],
    names: set[str],
    findings: tuple[Finding, ...],
    ours: Brought,
) -> Brought:
    """The agents of presets. Of one that the repository's squad hides, the members are hidden with it."""
    agents: list[Agent] = []
    broken: dict[str, tuple[Finding, ...]] = {}
    told = [*findings]
    for preset, lead in zip(kept, leads, strict=True):
        if isinstance(preset, Flawed):
            broken[lead] = preset.findings
            told += preset.findings
            continue
        is_hidden = bool(ours.agents) and ours.agents[0].name == lead
        hidden = frozenset(agent.name for agent in ours.agents[1:]) if is_hidden else frozenset[str]()
        brought = _agents(_as_used(preset), _Place("user", shown(home / presets.FILE), lead, hidden), names)
        agents += brought.agents
        told += brought.findings
    return Brought(tuple(agents), tuple(told), broken)


def _as_used(preset: Preset) -> Preset:
    """A preset; of one that is kept as a squad, too, no more is used of its texts than of the squad's."""
    if not preset.source:
        return preset
    return structs.replace(
        preset,
        workers=tuple(structs.replace(one, prompt=one.prompt[:LONGEST_PROMPT]) for one in preset.workers),
        shared_context=preset.shared_context[:LONGEST_CONTEXT],
        routing_context=preset.routing_context[:LONGEST_CONTEXT],
    )


def _agents(preset: Preset, place: _Place, names: set[str]) -> Brought:
    """The lead of a team and its members; `names` gets those of the members."""
    told: list[Finding] = []
    listed: list[Member] = []
    agents: list[Agent] = []
    for member, worker in zip(preset.members(), preset.workers, strict=True):
        own = _numbered(slug(member.name) or "member", [one.name or one.agent for one in listed])
        name = own
        if own in (others := names - place.hidden | {agent.name for agent in agents}):
            name = _numbered(slug(f"{place.lead}-{own}"), others)
            message = f"another agent is called {own}, so that {own} of {place.lead} is the agent {name}"
            told.append(Finding(severity="notice", path=place.path, key="members", message=message))
        names.add(name)
        agents.append(
            Agent(
                name=name,
                display_name=member.name if member.name != name else "",
                description=member.role,
                prompt=member.prompt or generic(own),
                model=_model(member.model, own, place, told),
                tools=WORKING if worker.tools is None else worker.tools,
                role=member.role,
                source=place.source,
                path=place.path,
            )
        )
        listed.append(_listed(own, agents[-1], preset, place))
    lead = _lead(preset, place, listed, _model(preset.lead_model, place.lead, place, told))
    return Brought((lead, *agents), tuple(told))


def _listed(own: str, agent: Agent, preset: Preset, place: _Place) -> Member:
    """A member in the lead's list, by its own name."""
    refers = f"user:{agent.name}" if agent.name in place.hidden else agent.name
    prompt = ""
    if preset.shared_context and preset.mode in WITHOUT_TASKS:
        prompt = f"## Team Context (shared knowledge)\n{preset.shared_context}\n\n{agent.prompt}"
    return Member(agent=refers, name=own if own != refers else "", prompt=prompt)


def _lead(preset: Preset, place: _Place, members: Sequence[Member], model: str) -> Agent:
    names = [member.name or member.agent for member in members]
    options: dict[str, Any] = {
        "shared_context": preset.shared_context,
        "routing": preset.routing_context,
        "worktrees": preset.worktrees,
        "max_iterations": preset.max_iterations or 0,
        **preset.manner.options(),
    }
    return Agent(
        name=place.lead,
        display_name=preset.name if preset.name != place.lead else "",
        description=preset.description or f"Leads {_few(names)}.",
        prompt=preset.lead_prompt or LEADING.format(name=preset.name),
        model=model,
        team=Team(
            mode=preset.mode,
            members=tuple(members),
            evaluator=preset.evaluator or None,
            options={key: value for key, value in options.items() if value != "" and value != 0},
        ),
        source=place.source,
        path=place.path,
    )


def _few(names: Sequence[str]) -> str:
    """The names, the first ones where there are many."""
    if len(names) > MOST_NAMED:
        names = [*names[: MOST_NAMED - 1], f"{len(names) - MOST_NAMED + 1} more"]
    return joined(names) or "nobody"


def _model(text: str, who: str, place: _Place, told: list[Finding]) -> str:
    """The model that is named; none where that is not the name of one."""
    if not text or is_model(text):
        return text
    message = f"{who} prefers the model {quoted(text)}, which is none; it thinks with the default"
    told.append(Finding(severity="warning", path=place.path, message=message))
    return ""


def is_model(text: str) -> bool:
    """Whether `text` can be the name of a model, whatever models there are."""
    return _MODEL.fullmatch(text) is not None


def _numbered(name: str, taken: Collection[str]) -> str:
    """`name`, with a number where it is taken, and not too long."""
    number, free = 1, name
    while free in taken:
        number += 1
        end = f"-{number}"
        free = f"{name[: LONGEST - len(end)].rstrip('-')}{end}"
    return free


def _notices(sentences: Iterable[str], path: str) -> tuple[Finding, ...]:
    return tuple(Finding(severity="notice", path=path, message=sentence) for sentence in sentences)
