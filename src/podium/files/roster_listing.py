"""The lists of agents and teams, a team in full, and a workflow graph, as they are sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from ..values.agent import Agent, Edge, Source
from ..values.column import Document, DocumentPart
from ..values.errors import Diagnostic
from ..values.team_modes import Mode
from .discovery import SOURCE_PREFIXES, Roster
from .team_definition import TeamDefinition, TeamKind, is_team
from .workflow_graph import Agents, find_terminal_agents, format_edge_label, iter_edges


class AgentItem(DocumentPart, frozen=True, kw_only=True):
    """An agent in a list."""

    name: str
    source: Source
    description: str
    path: str


class BrokenAgent(DocumentPart, frozen=True, kw_only=True):
    """An agent with errors in its file."""

    name: str
    findings: tuple[Diagnostic, ...]


class AgentList(Document, frozen=True, kw_only=True):
    """All agents: those in use, those overridden by another agent, and those with errors."""

    agents: list[AgentItem]
    shadowed: list[AgentItem]
    broken: list[BrokenAgent]


def list_agents(roster: Roster) -> AgentList:
    """Return all agents."""
    return AgentList(
        agents=[AgentItem.of(agent) for agent in roster.agents.values()],
        shadowed=[AgentItem.of(agent) for agent in roster.shadowed],
        broken=[BrokenAgent(name=name, findings=findings) for name, findings in roster.broken.items()],
    )


def format_shadowed_name(roster: Roster, agent: Agent) -> str:
    """Return the qualified name of a shadowed agent, or its bare name if the qualified name refers to another agent."""
    name = f"{SOURCE_PREFIXES[agent.source]}:{agent.name}"
    return name if roster.by_qualified_name.get(name) is agent else agent.name


class TeamItem(DocumentPart, frozen=True, kw_only=True):
    """A team or router in a list. Those that are overridden by another agent are `shadowed`."""

    name: str
    title: str
    source: Source
    mode: Mode | Literal["router"]
    members: list[str]
    description: str
    path: str
    shadowed: bool


def list_teams(roster: Roster) -> Iterator[TeamItem]:
    """Yield every team and router. Shadowed ones come last."""
    named = [(agent, agent.name) for agent in roster.agents.values()]
    shadowed = [(agent, format_shadowed_name(roster, agent)) for agent in roster.shadowed]
    for agent, name in (*named, *shadowed):
        if is_team(agent):
            team = agent.team
            yield TeamItem.of(
                agent,
                name=name,
                title=agent.display_name or agent.name,
                mode=team.mode if team else "router",
                members=[one.name or one.agent for one in team.members] if team else list(agent.destinations),
                shadowed=(agent, name) in shadowed,
            )


class TeamMember(DocumentPart, frozen=True, kw_only=True):
    """A member of a team, with what the team or its own file says about it."""

    name: str
    agent: str
    role: str
    model: str
    prompt: str
    path: str


class TeamDetails(Document, frozen=True, kw_only=True):
    """A team in full: its mode, its options and its members."""

    name: str
    title: str
    kind: TeamKind
    source: Source
    path: str
    description: str
    mode: Mode
    model: str
    prompt: str
    evaluator: str
    members: list[TeamMember]
    options: dict[str, Any]


def describe_team(found: TeamDefinition) -> TeamDetails:
    """Return a team in full."""
    lead, team = found.lead, found.lead.team
    assert team is not None
    members = [
        TeamMember(
            name=(member.name or member.agent).rpartition(":")[2],
            agent=member.agent,
            role=member.role or agent.role or agent.description,
            model=member.model or agent.model,
            prompt=agent.prompt if found.kind in ("squad", "preset") else member.prompt or agent.prompt,
            path=agent.path,
        )
        for member, agent in zip(team.members, found.members, strict=True)
    ]
    more = {"mode": team.mode, "evaluator": team.evaluator, "options": team.options, "members": members}
    return TeamDetails.of(lead, title=found.name, kind=found.kind, **more)


class GraphEdge(DocumentPart, frozen=True, kw_only=True):
    """How an agent is connected to another one."""

    kind: Edge
    label: str
    to: str


class GraphAgent(DocumentPart, frozen=True, kw_only=True):
    """An agent in a graph. A `terminal` agent can give the final answer."""

    name: str
    source: Source
    path: str
    terminal: bool
    edges: list[GraphEdge]


class AgentGraph(Document, frozen=True, kw_only=True):
    """An agent, the agents that it needs, and those of them that can give the final answer."""

    agent: str
    terminal: tuple[str, ...]
    agents: list[GraphAgent]


def build_graph(agents: Agents, name: str) -> AgentGraph:
    """Return the graph of the agent with this name."""
    terminal = find_terminal_agents(agents, name)
    drawn = [
        GraphAgent.of(
            agent,
            terminal=agent.name in terminal,
            edges=[
                GraphEdge.of(edge, label=format_edge_label(agent, edge), to=edge.name) for edge in iter_edges(agent)
            ],
        )
        for agent in agents.values()
    ]
    return AgentGraph(agent=name, terminal=terminal, agents=drawn)
