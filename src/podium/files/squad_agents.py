"""Build the agents of squads and presets: a lead for each team, and an agent for each of its members.

A lead has the team's name, and overrides other agents of that name in the same way as an agent file. A member
overrides nothing: if its name is taken, its agent gets the lead's name as a prefix, and the member's own name
applies only inside the team.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from msgspec import structs

from ..system.locations import format_path
from ..values.agent import Agent, Member, Source, Team
from ..values.errors import Diagnostic, Mistake
from ..values.json import Json
from ..values.located_yaml import quote_text
from ..values.plain_text import join_words
from ..values.tool_table import DEFAULT_WORKER_TOOLS
from . import presets
from .agent_name import MAX_NAME_LENGTH, make_unique_name, to_agent_name
from .presets import InvalidPreset, Preset
from .squad import discover_with_notices
from .squad.charter import MAX_PROMPT_LENGTH, MODEL_NAME, parse_charter, render_generic_charter
from .squad.squad_folder import MAX_CONTEXT_LENGTH, SQUAD_FOLDER, TEAM_FILE
from .team_keys import describe_idle_key

LEAD_PROMPT = (
    "You lead the team {name}. Give each part of a request to the member whose role fits it best, "
    "and base your answer on the members' results."
)
DEFAULT_LEAD_NAME = "team"
MAX_NAMES_SHOWN = 6


class TeamAgents(NamedTuple):
    """Agents from presets or from a squad, with diagnostics. `broken` maps the names of unusable leads to errors."""

    agents: tuple[Agent, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    broken: Mapping[str, tuple[Diagnostic, ...]] = MappingProxyType({})


class TeamAgentsBySource(NamedTuple):
    """The agents from the user's presets and from the repository's squad."""

    from_presets: TeamAgents
    from_squad: TeamAgents


class _TeamLocation(NamedTuple):
    """The place where a team is stored, and the name of its lead.

    If a squad overrides the team, `hidden` contains the names of the squad's members. The members of the overridden
    team may have the same names.
    """

    source: Source
    path: str
    lead: str
    hidden: frozenset[str] = frozenset()


def load_team_agents(repo: Path | None, home: Path, taken: Collection[str]) -> TeamAgentsBySource:
    """Load the agents of all presets and of the repository's squad.

    `taken` contains the names of agents that are defined in files. A team member with one of these names is renamed.
    """
    names = {*taken}
    entries, diagnostics = _load_presets(home)
    leads = _name_leads(entries)
    names |= {*leads}
    from_squad = TeamAgents() if repo is None else _load_squad_agents(repo.absolute(), names)
    return TeamAgentsBySource(_build_preset_agents(home, entries, leads, names, diagnostics, from_squad), from_squad)


def _load_squad_agents(repo: Path, names: set[str]) -> TeamAgents:
    """Load the agents of the repository's squad and add their names to `names`."""
    found = discover_with_notices(repo)
    if found.team is None:
        return TeamAgents(diagnostics=_make_notices(found.notices, SQUAD_FOLDER))
    assert found.team.source is not None
    location = _TeamLocation(
        "repo",
        format_path(found.team.source / TEAM_FILE, repo=repo),
        to_agent_name(found.team.name) or DEFAULT_LEAD_NAME,
    )
    names.add(location.lead)
    team_agents = _build_team_agents(presets.preset_from_team(found.team), location, names)
    notices = _make_notices(found.notices, format_path(found.team.source, repo=repo))
    return TeamAgents(team_agents.agents, (*notices, *team_agents.diagnostics))


def _load_presets(home: Path) -> tuple[tuple[Preset | InvalidPreset, ...], tuple[Diagnostic, ...]]:
    """Load the presets, with diagnostics about their file."""
    path = format_path(home / presets.PRESETS_FILE)
    try:
        found = presets.load_presets(home)
    except Mistake as mistake:
        return (), (
            Diagnostic(
                severity="error", path=path, message=str(mistake).removeprefix(f"{home / presets.PRESETS_FILE} ")
            ),
        )
    return found.entries, _make_notices(found.notices, path)


def _name_leads(entries: Iterable[Preset | InvalidPreset]) -> list[str]:
    """Return a unique lead name for each preset."""
    found: list[str] = []
    for preset in entries:
        found.append(_make_unique_name(to_agent_name(preset.name) or DEFAULT_LEAD_NAME, found))
    return found


def _build_preset_agents(
    home: Path,
    entries: Sequence[Preset | InvalidPreset],
    leads: Sequence[str],
    names: set[str],
    file_diagnostics: tuple[Diagnostic, ...],
    from_squad: TeamAgents,
) -> TeamAgents:
    """Build the agents of presets. If the squad overrides a preset, it also overrides the preset's members."""
    agents: list[Agent] = []
    broken: dict[str, tuple[Diagnostic, ...]] = {}
    diagnostics = [*file_diagnostics]
    for preset, lead in zip(entries, leads, strict=True):
        if isinstance(preset, InvalidPreset):
            broken[lead] = preset.diagnostics
            diagnostics += preset.diagnostics
            continue
        is_hidden = bool(from_squad.agents) and from_squad.agents[0].name == lead
        hidden = frozenset(agent.name for agent in from_squad.agents[1:]) if is_hidden else frozenset[str]()
        team_agents = _build_team_agents(
            _truncate_preset(preset),
            _TeamLocation("user", format_path(home / presets.PRESETS_FILE), lead, hidden),
            names,
        )
        agents += team_agents.agents
        diagnostics += team_agents.diagnostics
    return TeamAgents(tuple(agents), tuple(diagnostics), broken)


def _truncate_preset(preset: Preset) -> Preset:
    """Truncate the prompts and contexts of a preset copied from a squad to the lengths that squads allow."""
    if not preset.source:
        return preset
    return structs.replace(
        preset,
        workers=tuple(structs.replace(one, prompt=one.prompt[:MAX_PROMPT_LENGTH]) for one in preset.workers),
        shared_context=preset.shared_context[:MAX_CONTEXT_LENGTH],
        routing_context=preset.routing_context[:MAX_CONTEXT_LENGTH],
    )


def _build_team_agents(preset: Preset, location: _TeamLocation, names: set[str]) -> TeamAgents:
    """Build a team's lead and members, and add the members' names to `names`."""
    diagnostics: list[Diagnostic] = []
    listed: list[Member] = []
    agents: list[Agent] = []
    for member, worker in zip(preset.to_members(), preset.workers, strict=True):
        own = _make_unique_name(to_agent_name(member.name) or "member", [one.name or one.agent for one in listed])
        name = own
        if own in (others := names - location.hidden | {agent.name for agent in agents}):
            name = _make_unique_name(to_agent_name(f"{location.lead}-{own}"), others)
            message = f"another agent is called {own}, so {own} from {location.lead} is available as {name}"
            diagnostics.append(Diagnostic(severity="notice", path=location.path, key="members", message=message))
        names.add(name)
        charter = parse_charter(member.prompt)
        agents.append(
            Agent(
                name=name,
                display_name=member.name if member.name != name else "",
                description=member.role,
                prompt=member.prompt or render_generic_charter(own),
                model=_check_model(member.model, own, location, diagnostics),
                tools=DEFAULT_WORKER_TOOLS if worker.tools is None else worker.tools,
                role=member.role,
                capabilities=tuple(charter.expertise),
                fallback_models=tuple(charter.fallbacks),
                source=location.source,
                path=location.path,
            )
        )
        refers = f"user:{name}" if name in location.hidden else name
        listed.append(Member(agent=refers, name=own if own != refers else ""))
    diagnostics += _warn_about_idle_keys(preset, location)
    lead = _build_lead(preset, location, listed, _check_model(preset.lead_model, location.lead, location, diagnostics))
    return TeamAgents((lead, *agents), tuple(diagnostics))


def _warn_about_idle_keys(preset: Preset, location: _TeamLocation) -> Iterator[Diagnostic]:
    """Yield a warning for each key of a preset that has no effect in its mode. A squad has no such keys."""
    own = {"evaluator": bool(preset.evaluator), "max_iterations": preset.max_iterations is not None}
    places = {key: key for key, is_given in own.items() if is_given}
    places |= {key: f"manner.{key}" for key in preset.manner}
    for key, place in places.items():
        if why := describe_idle_key(key, preset.mode, places):
            yield Diagnostic(severity="warning", path=location.path, key=f"{preset.name}.{place}", message=why)


def _build_lead(preset: Preset, location: _TeamLocation, members: Sequence[Member], model: str) -> Agent:
    names = [member.name or member.agent for member in members]
    options: dict[str, Json] = {
        "shared_context": preset.shared_context,
        "routing": preset.routing_context,
        "worktrees": preset.worktrees,
        "max_iterations": preset.max_iterations or 0,
        **preset.manner,
    }
    return Agent(
        name=location.lead,
        display_name=preset.name if preset.name != location.lead else "",
        description=preset.description or f"Leads {_join_first_names(names)}.",
        prompt=preset.lead_prompt or LEAD_PROMPT.format(name=preset.name),
        model=model,
        team=Team(
            mode=preset.mode,
            members=tuple(members),
            evaluator=preset.evaluator or None,
            options={key: value for key, value in options.items() if value != "" and value != 0},
        ),
        source=location.source,
        path=location.path,
    )


def _join_first_names(names: Sequence[str]) -> str:
    """Join the names. If there are many, join only the first few."""
    if len(names) > MAX_NAMES_SHOWN:
        names = [*names[: MAX_NAMES_SHOWN - 1], f"{len(names) - MAX_NAMES_SHOWN + 1} more"]
    return join_words(names) or "nobody"


def _check_model(text: str, who: str, location: _TeamLocation, diagnostics: list[Diagnostic]) -> str:
    """Return the model name. If the name is invalid, add a warning and return an empty string."""
    if not text or is_model_name(text):
        return text
    message = f"{who} has an invalid model, {quote_text(text)}; using the default model"
    diagnostics.append(Diagnostic(severity="warning", path=location.path, message=message))
    return ""


def is_model_name(text: str) -> bool:
    """Return whether `text` has the form of a model name. The model does not have to exist."""
    return MODEL_NAME.fullmatch(text) is not None


def _make_unique_name(name: str, taken: Collection[str]) -> str:
    """Return an agent name that is not taken: `name`, with a number appended if necessary."""
    return make_unique_name(name, taken.__contains__, longest=MAX_NAME_LENGTH)


def _make_notices(sentences: Iterable[str], path: str) -> tuple[Diagnostic, ...]:
    return tuple(Diagnostic(severity="notice", path=path, message=sentence) for sentence in sentences)
