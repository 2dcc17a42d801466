"""Describe a collaborating team, and find its planner, its reviewers and members that can take over a step."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from msgspec import structs

from ..core.operation import Operation
from ..values.agent import Agent
from ..values.event import DecisionCommitted, DecisionProposed, FormedMember, TeamFormed
from ..values.request import Request, quote_lines
from ..values.team_modes import CollaborateOptions
from .member_tasks import describe_workers, get_team_options, resolve_members
from .work_plan import find_member_name


@dataclass(frozen=True, slots=True, kw_only=True)
class CollaborationTeam:
    """A collaborating team and its request."""

    lead: Agent
    members: dict[str, Agent]
    own: CollaborateOptions
    request: Request
    planner: Agent

    @classmethod
    def from_operation(cls, op: Operation, request: Request) -> CollaborationTeam:
        """Return the team that an operation's agent leads. Raise AgentFailed if it has no members."""
        members = resolve_members(op)
        if not members:
            raise op.make_error("failed", "its team has no members; add some under team.members")
        lead = structs.replace(op.agent, team=None, advisors=None, handoff=None, router=None)
        planner = next((agent for agent in members.values() if _has_role(agent, "planner")), lead)
        return cls(
            lead=lead, members=members, own=get_team_options(op, CollaborateOptions), request=request, planner=planner
        )

    def describe_formation(self) -> TeamFormed:
        """Return the event that describes the team.

        It lists the goal, the members, the constraints, and the required roles and capabilities that no member has.
        """
        offered = {word.casefold() for agent in self.members.values() for word in (agent.role, *agent.capabilities)}
        missing = [word for word in self.own.needs if word.casefold() not in offered]
        return TeamFormed(
            goal=self.goal,
            members=tuple(
                FormedMember(name=name, role=agent.role, capabilities=agent.capabilities)
                for name, agent in self.members.items()
            ),
            constraints=self.own.constraints,
            missing=tuple(missing),
        )

    @property
    def uses_branches(self) -> bool:
        """Whether any member works in a separate checkout, on a branch."""
        return any(agent.isolation != "shared" for agent in self.members.values())

    @property
    def goal(self) -> str:
        """The request to the lead. In a nested team, it is only a part of the user's request."""
        return self.request.text

    def describe_members(self) -> str:
        """Describe the members for the planner: their names, roles, expertise and tools."""
        return "\n".join(
            f"{' '.join(describe_workers({name: agent}).split())} "
            f"Tools: {', '.join(agent.tools or ()) or 'reading tools only'}"
            for name, agent in self.members.items()
        )

    def format_constraints(self) -> str:
        """Return the constraints as a prompt section, or an empty string if there are none."""
        if not self.own.constraints:
            return ""
        return f"\n## Constraints\n{''.join(map(quote_lines, self.own.constraints)).strip()}\n"

    def find_member(self, name: str) -> str | None:
        """Return the registered name of the member called `name`, or None if there is none."""
        return find_member_name(name, self.members)

    def list_decisions(self, op: Operation) -> list[str]:
        """Return one line for each decision that the team has made in this operation."""
        topics = {one.id: one.topic for one in op.scope.timeline.find_events_below(op.scope.path, DecisionProposed)}
        made = op.scope.timeline.find_events_below(op.scope.path, DecisionCommitted)
        return [f"{topics.get(one.decision, one.decision)}: {one.option} ({one.how})" for one in made]

    def list_decision_ids(self, op: Operation) -> list[str]:
        """Return the ids of the decisions that the team has made in this operation."""
        return [one.decision for one in op.scope.timeline.find_events_below(op.scope.path, DecisionCommitted)]

    def find_reviewers(self, authors: Collection[str]) -> list[Agent]:
        """Return the agents that can review work by `authors`, best first: reviewers, other members, then the lead.

        A lead that has the same name as a member does not review, because the two could not be told apart.
        """
        others = [agent for name, agent in self.members.items() if name not in authors]
        ranked = sorted(others, key=lambda agent: not _has_role(agent, "reviewer"))
        return ranked if self.lead.name in self.members else [*ranked, self.lead]

    def find_replacement(self, authors: Iterable[str], owner: str) -> str:
        """Return a member that can revise a step instead of its authors, or `owner` if there is no other member."""
        taken = set(authors)
        others = [name for name in self.members if name not in taken]
        same = [name for name in others if self.members[name].role == self.members[owner].role]
        workers = [name for name in others if not _has_role(self.members[name], "reviewer", "planner")]
        return next(iter((*same, *workers, *others)), owner)


def _has_role(agent: Agent, *roles: str) -> bool:
    """Return whether an agent has one of these roles."""
    return agent.role.casefold() in roles
