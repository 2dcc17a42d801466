"""Build a new team from existing agents: built-in agents, the repository's, and the user's own.

The result is a preset, which `save_team` saves in the same way as a team that `podium team save` reads from a file.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from ..values.agent import Agent, Member, Team
from ..values.errors import Mistake
from ..values.json import Json
from ..values.located_yaml import quote_text
from ..values.team_modes import Mode
from .agent_name import to_agent_name
from .discovery import Roster
from .presets import Preset, check_preset, parse_mode_options
from .squad_agents import is_model_name
from .team_definition import is_team, preset_from_agents
from .team_keys import describe_idle_key


class NewTeam(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The description of a new team. The lead gets the prompt and model of the agent `lead`, or a general prompt.

    `options` contains other keys that an agent's file can have under `team:`. For an empty field, the default is used.
    """

    name: str
    members: tuple[str, ...]
    mode: Mode = "orchestrate"
    lead: str = ""
    description: str = ""
    model: str = ""
    evaluator: str = ""
    worktrees: str = ""
    max_iterations: int | None = None
    shared_context: str = ""
    options: dict[str, Any] = {}


def build_new_team(given: NewTeam, roster: Roster) -> Preset:
    """Return the team as a preset. Raise Mistake if an agent does not exist or an option is wrong."""
    name = given.name.strip()
    if not to_agent_name(name):
        raise Mistake(
            f"{quote_text(given.name)} is not a valid team name; "
            "use a name with ASCII letters or digits, such as api-review"
        )
    if not given.members:
        raise Mistake(f"the team {name} has no members, so there is nothing to save; add one")
    if given.model and not is_model_name(given.model):
        raise Mistake(f"{quote_text(given.model)} is not a model name; use e.g. sonnet or openai:gpt-5-mini")
    lead = roster.get(given.lead) if given.lead else Agent(name=to_agent_name(name))
    if is_team(lead):
        raise Mistake(
            f"{lead.name} already leads a team or is a router; choose another agent as lead, or save the team without "
            "a lead"
        )
    if given.evaluator:
        roster.get(given.evaluator)
    members = tuple(roster.get(member) for member in given.members)
    team = Team(
        mode=given.mode,
        members=tuple(Member(agent=member) for member in given.members),
        evaluator=given.evaluator or None,
        options=_collect_options(name, given),
    )
    preset = preset_from_agents(
        Agent(
            name=to_agent_name(name),
            display_name=name,
            description=given.description.strip(),
            prompt=lead.prompt,
            model=given.model or lead.model,
            team=team,
        ),
        members,
    )
    check_preset(preset)
    return preset


def _collect_options(name: str, given: NewTeam) -> dict[str, Json]:
    """Return the options that are set. Raise Mistake if one has no effect in the team's mode."""
    options: dict[str, Json] = {
        "worktrees": given.worktrees,
        "shared_context": given.shared_context,
        "max_iterations": given.max_iterations,
        **parse_mode_options(name, given.options),
    }
    chosen: dict[str, Json] = {key: value for key, value in options.items() if value not in (None, "")}
    keys = (*chosen, *(("evaluator",) if given.evaluator else ()))
    for key in keys:
        if why := describe_idle_key(key, given.mode, keys):
            raise Mistake(f"{key} {why}; leave it out, or choose another mode")
    return chosen
