"""Find, save, change and delete stored teams.

A team is stored as a squad's folder, a preset, or agent files. Only squads and presets are written.
Agent files are the user's own text and are never changed. Callers ask the user for confirmation first.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import msgspec
from msgspec import structs

from ..system.locations import format_path
from ..values.agent import Agent
from ..values.errors import Mistake
from ..values.located_yaml import quote_text
from ..values.plain_text import join_words
from ..values.team_modes import MODES, Mode
from ..values.tool_table import DEFAULT_TOOLS
from . import presets, squad
from .agent_name import suggest_names, to_agent_name
from .discovery import Roster
from .presets import MANNER_KEYS, Preset, PresetWorker
from .squad.squad_folder import LEGACY_SQUAD_FOLDER, SQUAD_FOLDER, TEAM_FILE
from .squad_agents import LEAD_PROMPT

TeamKind = Literal["squad", "preset", "files", "built-in"]

LEAD_KEYS = frozenset({"name", "description", "prompt", "display_name", "model", "team", "source", "path", "other"})
MEMBER_KEYS = LEAD_KEYS - {"team"} | {"tools", "role"}
CHARTER_KEYS = frozenset({"capabilities", "fallback_models"})
"""Keys of a member that a preset does not need to store, because they are derived from the prompt."""
CONTEXT_FIELDS = {"shared_context": "shared_context", "routing": "routing_context"}
PLAIN_OPTIONS = ("worktrees", "max_iterations")


class TeamDefinition(NamedTuple):
    """A stored team: its lead and its members, as agents, and the form in which the team is stored."""

    lead: Agent
    members: tuple[Agent, ...]
    kind: TeamKind
    preset: Preset | None = None
    squad: squad.Team | None = None

    @property
    def name(self) -> str:
        """The team's name as the user wrote it."""
        return self.lead.display_name or self.lead.name.rpartition(":")[2]

    def as_preset(self) -> Preset:
        """Return the team as a preset. Raise Mistake if its agent files have keys that a preset cannot store."""
        return self.preset if self.preset is not None else preset_from_agents(self.lead, self.members)

    def as_own_copy(self, home: Path) -> Preset:
        """Return the team as a preset to save. If the user has a copy of this squad, keep the copy's extra settings."""
        preset = self.as_preset()
        copy = presets.load_presets(home).get(preset.name)
        is_copy = self.squad is not None and copy is not None and copy.source == str(self.squad.source)
        return _keep_preset_only_settings(copy, preset) if copy is not None and is_copy else preset


def is_team(agent: Agent) -> bool:
    """Return whether an agent leads a team or is a router."""
    return agent.team is not None or agent.router is not None


def find_team(name: str, roster: Roster, *, repo: Path, home: Path) -> TeamDefinition:
    """Find a team by the name or display name of its lead.

    Raise Mistake if no agent has this name, or if the agent is a router or has no team.
    """
    lead = _find_lead(name, roster)
    if lead.team is None:
        if lead.router is not None:
            raise Mistake(f"{lead.name} is a router and has no members; run podium graph {lead.name} to see its routes")
        raise Mistake(f"{lead.name} is an agent without a team; run podium teams to list the teams")
    members = tuple(roster.get(member.agent) for member in lead.team.members)
    if lead.source == "user" and lead.path == format_path(home / presets.PRESETS_FILE):
        written = lead.display_name or lead.name.rpartition(":")[2]
        return TeamDefinition(lead, members, "preset", preset=presets.load_presets(home).get(written))
    if lead.source == "repo" and lead.path in (f"{SQUAD_FOLDER}/{TEAM_FILE}", f"{LEGACY_SQUAD_FOLDER}/{TEAM_FILE}"):
        team = squad.discover(repo)
        copy = None if team is None else presets.preset_from_team(squad.with_full_texts(team))
        return TeamDefinition(lead, members, "squad", preset=copy, squad=team)
    return TeamDefinition(lead, members, "built-in" if lead.source == "built-in" else "files")


def _find_lead(name: str, roster: Roster) -> Agent:
    if roster.resolve_name(name) is not None:
        return roster.get(name)
    teams = sorted(agent.name for agent in roster.agents.values() if is_team(agent))
    raise Mistake(f"team {quote_text(name)} not found; {suggest_names(name, teams)}")


def preset_from_agents(lead: Agent, members: tuple[Agent, ...]) -> Preset:
    """Convert a team of agents to a preset. Raise Mistake if a preset cannot store the mode or a key of an agent."""
    assert lead.team is not None
    _refuse_extra_keys(lead, lead, LEAD_KEYS)
    own = {*CONTEXT_FIELDS, *PLAIN_OPTIONS, *MANNER_KEYS}
    if over := [f"team.{key}" for key in lead.team.options if key not in own]:
        raise _make_extra_keys_error(lead, lead, over)
    workers = []
    for member, agent in zip(lead.team.members, members, strict=True):
        is_derived = agent.path.rpartition("/")[2] in (TEAM_FILE, presets.PRESETS_FILE)
        _refuse_extra_keys(lead, agent, MEMBER_KEYS | CHARTER_KEYS if is_derived else MEMBER_KEYS)
        if member.capabilities:
            raise _make_extra_keys_error(lead, lead, ["member capabilities"])
        if member.weight != 1:
            raise _make_extra_keys_error(lead, lead, ["member weights"])
        workers.append(
            PresetWorker(
                name=(member.name or member.agent).rpartition(":")[2],
                role=member.role or agent.role or agent.description,
                model=member.model or agent.model,
                prompt=member.prompt or agent.prompt,
                tools=DEFAULT_TOOLS if agent.tools is None else agent.tools,
            )
        )
    if lead.team.mode not in MODES:
        raise Mistake(f"{lead.name} leads a team in the mode {lead.team.mode!r}, which saved teams do not support")
    options = lead.team.options
    fields: dict[str, Any] = {field: options[key] for key, field in CONTEXT_FIELDS.items() if key in options}
    fields |= {key: options[key] for key in PLAIN_OPTIONS if key in options}
    return Preset(
        name=lead.display_name or lead.name.rpartition(":")[2],
        description=lead.description,
        mode=cast(Mode, lead.team.mode),
        lead_model=lead.model,
        lead_prompt=lead.prompt,
        evaluator=lead.team.evaluator or "",
        workers=tuple(workers),
        manner={key: value for key, value in options.items() if key in MANNER_KEYS},
        **fields,
    )


def _refuse_extra_keys(lead: Agent, agent: Agent, allowed_keys: frozenset[str]) -> None:
    # msgspec omits defaults, so these are the keys that the files set.
    if over := [key for key in msgspec.to_builtins(agent) if key not in allowed_keys]:
        raise _make_extra_keys_error(lead, agent, over)


def _make_extra_keys_error(lead: Agent, agent: Agent, keys: list[str]) -> Mistake:
    return Mistake(
        f"{lead.name} cannot be saved as a preset or a squad: {agent.path or agent.name} has "
        f"{join_words(keys)}, "
        "which only agent files support; copy the agent files instead"
    )


def _squad_team_from_preset(preset: Preset, repo: Path) -> squad.Team:
    """Convert a preset to a team that can be saved as this repository's squad."""
    # A copy of this repository's squad may be older than the squad's files, so saving the copy must not empty them.
    source = Path(preset.source) if preset.source and Path(preset.source).parent != repo.absolute() else None
    context = preset.shared_context, preset.routing_context
    return squad.Team(preset.name, preset.mode, preset.to_members(), *context, source)


def list_preset_only_settings(preset: Preset) -> list[str]:
    """List a preset's settings that a squad's folder cannot store."""
    is_own = preset.lead_prompt not in ("", LEAD_PROMPT.format(name=preset.name))
    said = {
        "the description": bool(preset.description),
        "the lead's prompt": is_own,
        "the lead's model": bool(preset.lead_model),
        "evaluator": bool(preset.evaluator),
        "worktrees": bool(preset.worktrees),
        "max_iterations": preset.max_iterations is not None,
        "the members' tools": any(worker.tools is not None for worker in preset.workers),
    }
    return [*(words for words, is_said in said.items() if is_said), *preset.manner]


def describe_save_losses(preset: Preset, *, repo: Path | None, home: Path, team: squad.Team | None = None) -> list[str]:
    """Describe in full sentences which teams `save_team` would replace, and which settings it would not keep."""
    losses = []
    there = None if repo is None else squad.discover(repo)
    if there is not None and squad.slug(there.name) != squad.slug(preset.name):
        who = join_words([member.name for member in there.members])
        losses.append(f"The repository already has the squad {there.name} with {who}, which would be replaced.")
    if repo is not None and team is None and (unsaved := list_preset_only_settings(preset)):
        losses.append(
            f"A squad folder cannot store {join_words(unsaved)}, so {preset.name} would run without them. "
            "Use --mine to save a complete copy for yourself only."
        )
    own = presets.load_presets(home).get(preset.name)
    is_other = own is not None and structs.replace(own, source="") != structs.replace(preset, source="")
    is_copy_of_squad = own is not None and team is not None and own.source == str(team.source)
    if is_other and not is_copy_of_squad:
        losses.append(f"Your own team {preset.name} differs from this one and would be replaced.")
    return losses


def find_overridden_builtin(name: str, roster: Roster) -> str | None:
    """Return the qualified name of the built-in agent that a team with this name overrides, or None."""
    qualified_name = f"builtin:{to_agent_name(name)}"
    return qualified_name if qualified_name in roster.by_qualified_name else None


def save_team(preset: Preset, *, repo: Path | None, home: Path, team: squad.Team | None = None) -> Path | None:
    """Save a team as a preset and, if `repo` is given, as the repository's squad. Return the squad's folder, if any.

    If the team was read from a squad's folder, pass that squad as `team`. The repository's squad is then written from
    `team` instead of `preset`.
    """
    presets.load_presets(home)  # raises before anything is written
    presets.check_preset(preset)
    folder = None if repo is None else squad.write(team or _squad_team_from_preset(preset, repo), repo)
    presets.save_preset(home, preset if folder is None else structs.replace(preset, source=str(folder)))
    return folder


def _keep_preset_only_settings(copy: Preset, preset: Preset) -> Preset:
    """Return `preset` with the settings from `copy` that a squad cannot store."""
    tools = {worker.name: worker.tools for worker in copy.workers}
    return structs.replace(
        preset,
        description=copy.description,
        lead_prompt=copy.lead_prompt,
        lead_model=copy.lead_model,
        evaluator=copy.evaluator,
        worktrees=copy.worktrees,
        max_iterations=copy.max_iterations,
        manner=copy.manner,
        workers=tuple(structs.replace(worker, tools=tools.get(worker.name)) for worker in preset.workers),
    )


def delete_team(found: TeamDefinition, *, repo: Path, home: Path) -> None:
    """Delete a squad's folder or a preset. Raise Mistake for any other team."""
    if found.squad is not None:
        squad.delete(found.squad, repo)
    elif found.kind == "preset":
        presets.delete_preset(home, found.name)
    elif found.kind == "built-in":
        raise Mistake(f"{found.lead.name} is built in and cannot be deleted; save a team with that name to override it")
    else:
        raise Mistake(f"{found.lead.name} is defined in {found.lead.path}; delete that file yourself")


def change_team_member(
    found: TeamDefinition, member: str, *, repo: Path, home: Path, model: str | None = None, prompt: str | None = None
) -> TeamKind:
    """Change a member's model or prompt, and return the kind of the saved team. A built-in team is saved as a preset.

    Raise Mistake if the team is defined in agent files, or if the new preset would replace an existing preset.
    """
    place = _find_member_index(found, member)
    changes: dict[str, str] = {key: value for key, value in (("model", model), ("prompt", prompt)) if value is not None}
    if found.kind == "files":
        path = found.members[place].path
        raise Mistake(f"{member} of {found.lead.name} is defined in {path}; change {join_words([*changes])} there")
    if found.kind == "built-in" and presets.load_presets(home).get(found.name) is not None:
        raise Mistake(
            f"{found.lead.name} is built in, so a change is saved as a copy, which would replace your own team "
            f"{found.name}; change user:{found.name} instead, or delete it first"
        )
    if found.squad is None:
        presets.save_preset(home, _replace_worker(found.as_preset(), place, changes))
        return "preset"
    copy = presets.load_presets(home).get(found.squad.name)
    squad.write(_replace_member(found.squad, place, changes), repo)
    if copy is not None and copy.source == str(found.squad.source):
        names = [worker.name for worker in copy.workers]
        if (name := found.squad.members[place].name) in names:
            presets.save_preset(home, _replace_worker(copy, names.index(name), changes))
    return "squad"


def _replace_worker(preset: Preset, place: int, changes: Mapping[str, str]) -> Preset:
    changed = structs.replace(preset.workers[place], **changes)
    return structs.replace(preset, workers=(*preset.workers[:place], changed, *preset.workers[place + 1 :]))


def _replace_member(team: squad.Team, place: int, changes: Mapping[str, str]) -> squad.Team:
    known: dict[str, bool] = {"shortened": False} if "prompt" in changes else {}
    changed = structs.replace(team.members[place], **changes, **known)
    return structs.replace(team, members=(*team.members[:place], changed, *team.members[place + 1 :]))


def _find_member_index(found: TeamDefinition, member: str) -> int:
    """Return the index of a member, given by its name in the team or the name of its agent."""
    assert found.lead.team is not None
    names = [one.name or one.agent.rpartition(":")[2] for one in found.lead.team.members]
    for known in (names, [one.agent for one in found.lead.team.members]):
        for wanted in (member, to_agent_name(member)):
            if wanted in known:
                return known.index(wanted)
    raise Mistake(f"member {quote_text(member)} not found in {found.lead.name}; {suggest_names(member, sorted(names))}")
