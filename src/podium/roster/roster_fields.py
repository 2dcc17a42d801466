"""Convert agents, teams and workflow graphs to JSON fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..values.agent import Agent
from .discovery import SOURCE_PREFIXES, Roster
from .team_definition import TeamDefinition, is_team
from .workflow_graph import Agents, find_terminal_agents, format_edge_label, iter_edges


def roster_fields(roster: Roster) -> dict[str, Any]:
    """Return all agents: those in use, those overridden by another agent, and those with errors."""
    return {
        "agents": [agent_fields(agent) for agent in roster.agents.values()],
        "shadowed": [agent_fields(agent) for agent in roster.shadowed],
        "broken": [{"name": name, "findings": findings} for name, findings in roster.broken.items()],
    }


def agent_fields(agent: Agent) -> dict[str, str]:
    """Return the fields of an agent for the JSON list."""
    return {
        "name": agent.name,
        "source": agent.source,
        "description": agent.description,
        "path": agent.path,
    }


def format_shadowed_name(roster: Roster, agent: Agent) -> str:
    """Return the qualified name of a shadowed agent, or its bare name if the qualified name refers to another agent."""
    name = f"{SOURCE_PREFIXES[agent.source]}:{agent.name}"
    return name if roster.by_qualified_name.get(name) is agent else agent.name


def list_teams(roster: Roster) -> Iterator[dict[str, Any]]:
    """Yield the fields of every team and router. Shadowed ones come last."""
    yield from (team_summary_fields(agent, agent.name) for agent in roster.agents.values() if is_team(agent))
    yield from (
        team_summary_fields(agent, format_shadowed_name(roster, agent), True)
        for agent in roster.shadowed
        if is_team(agent)
    )


def team_summary_fields(agent: Agent, name: str, is_hidden: bool = False) -> dict[str, Any]:
    """Return the fields of a team or router for the JSON list."""
    members = [one.name or one.agent for one in agent.team.members] if agent.team else list(agent.destinations)
    return {
        "name": name,
        "title": agent.display_name or agent.name,
        "source": agent.source,
        "mode": agent.team.mode if agent.team else "router",
        "members": members,
        "description": agent.description,
        "path": agent.path,
        "shadowed": is_hidden,
    }


def team_fields(found: TeamDefinition) -> dict[str, Any]:
    """Return all fields of a team for JSON."""
    lead = found.lead
    assert lead.team is not None
    members = [
        {
            "name": (member.name or member.agent).rpartition(":")[2],
            "agent": member.agent,
            "role": member.role or agent.role or agent.description,
            "model": member.model or agent.model,
            "prompt": agent.prompt if found.kind in ("squad", "preset") else member.prompt or agent.prompt,
            "path": agent.path,
        }
        for member, agent in zip(lead.team.members, found.members, strict=True)
    ]
    return {
        "name": lead.name,
        "title": found.name,
        "kind": found.kind,
        "source": lead.source,
        "path": lead.path,
        "description": lead.description,
        "mode": lead.team.mode,
        "model": lead.model,
        "prompt": lead.prompt,
        "evaluator": lead.team.evaluator,
        "members": members,
        "options": lead.team.options,
    }


def graph_fields(agents: Agents, name: str) -> dict[str, Any]:
    """Return the agents, their edges and the agents that can give the final answer, as JSON fields."""
    owners = find_terminal_agents(agents, name)
    drawn = [
        {
            "name": agent.name,
            "source": agent.source,
            "path": agent.path,
            "terminal": agent.name in owners,
            "edges": [
                {"kind": edge.kind, "label": format_edge_label(agent, edge), "to": edge.name}
                for edge in iter_edges(agent)
            ],
        }
        for agent in agents.values()
    ]
    return {"agent": name, "terminal": owners, "agents": drawn}
