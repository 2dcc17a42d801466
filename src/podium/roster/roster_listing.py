"""The lists of agents and teams, a team in full, and a workflow graph, as they are sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, Self

from msgspec import Struct

from ..values.agent import Agent, Edge, Mode, Source
from ..values.diagnostic import Diagnostic
from ..values.document import Document
from .discovery import SOURCE_PREFIXES, Roster
from .team_definition import TeamDefinition, TeamKind, is_team
from .workflow_graph import Agents, find_terminal_agents, format_edge_label, iter_edges


class AgentItem(Struct, frozen=True, kw_only=True):
    """An agent in a list."""

    name: str
    source: Source
    description: str
    path: str

    @classmethod
    def of(cls, agent: Agent, **more: Any) -> Self:
        """Return an agent as it is listed. `more` contains the fields of a subclass."""
        return cls(name=agent.name, source=agent.source, description=agent.description, path=agent.path, **more)


class BrokenAgent(Struct, frozen=True, kw_only=True):
    """An agent with errors in its file."""

    name: str
    findings: tuple[Diagnostic, ...]


class AgentList(Document, frozen=True, kw_only=True):
    """All agents: those in use, those overridden by another agent, and those with errors."""

    agents: list[AgentItem]
    shadowed: list[AgentItem]
    broken: list[BrokenAgent]

    @classmethod
    def of(cls, roster: Roster) -> AgentList:
        """Return the agents of a roster."""
        return cls(
            agents=[AgentItem.of(agent) for agent in roster.agents.values()],
            shadowed=[AgentItem.of(agent) for agent in roster.shadowed],
            broken=[BrokenAgent(name=name, findings=findings) for name, findings in roster.broken.items()],
        )


def format_shadowed_name(roster: Roster, agent: Agent) -> str:
    """Return the qualified name of a shadowed agent, or its bare name if the qualified name refers to another agent."""
    name = f"{SOURCE_PREFIXES[agent.source]}:{agent.name}"
    return name if roster.by_qualified_name.get(name) is agent else agent.name


class TeamItem(Struct, frozen=True, kw_only=True):
    """A team or router in a list. Those that are overridden by another agent are `shadowed`."""

    name: str
    title: str
    source: Source
    mode: Mode | Literal["router"]
    members: list[str]
    description: str
    path: str
    shadowed: bool

    @classmethod
    def of(cls, agent: Agent, name: str, *, is_shadowed: bool = False) -> TeamItem:
        """Return a team or router as it is listed, under this name."""
        return cls(
            name=name,
            title=agent.display_name or agent.name,
            source=agent.source,
            mode=agent.team.mode if agent.team else "router",
            members=[one.name or one.agent for one in agent.team.members] if agent.team else list(agent.destinations),
            description=agent.description,
            path=agent.path,
            shadowed=is_shadowed,
        )


def list_teams(roster: Roster) -> Iterator[TeamItem]:
    """Yield every team and router. Shadowed ones come last."""
    yield from (TeamItem.of(agent, agent.name) for agent in roster.agents.values() if is_team(agent))
    yield from (
        TeamItem.of(agent, format_shadowed_name(roster, agent), is_shadowed=True)
        for agent in roster.shadowed
        if is_team(agent)
    )


class TeamMember(Struct, frozen=True, kw_only=True):
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

    @classmethod
    def of(cls, found: TeamDefinition) -> TeamDetails:
        """Return a team in full."""
        lead = found.lead
        assert lead.team is not None
        members = [
            TeamMember(
                name=(member.name or member.agent).rpartition(":")[2],
                agent=member.agent,
                role=member.role or agent.role or agent.description,
                model=member.model or agent.model,
                prompt=agent.prompt if found.kind in ("squad", "preset") else member.prompt or agent.prompt,
                path=agent.path,
            )
            for member, agent in zip(lead.team.members, found.members, strict=True)
        ]
        return cls(
            name=lead.name,
            title=found.name,
            kind=found.kind,
            source=lead.source,
            path=lead.path,
            description=lead.description,
            mode=lead.team.mode,
            model=lead.model,
            prompt=lead.prompt,
            evaluator=lead.team.evaluator,
            members=members,
            options=lead.team.options,
        )


class GraphEdge(Struct, frozen=True, kw_only=True):
    """How an agent is connected to another one."""

    kind: Edge
    label: str
    to: str


class GraphAgent(Struct, frozen=True, kw_only=True):
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

    @classmethod
    def of(cls, agents: Agents, name: str) -> AgentGraph:
        """Return the graph of the agent with this name."""
        terminal = find_terminal_agents(agents, name)
        drawn = [
            GraphAgent(
                name=agent.name,
                source=agent.source,
                path=agent.path,
                terminal=agent.name in terminal,
                edges=[
                    GraphEdge(kind=edge.kind, label=format_edge_label(agent, edge), to=edge.name)
                    for edge in iter_edges(agent)
                ],
            )
            for agent in agents.values()
        ]
        return cls(agent=name, terminal=terminal, agents=drawn)
