"""Convert a plan to a YAML document that a person can edit, and convert the edited document back to a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import yaml

from ..patterns.member_tasks import list_members
from ..patterns.work_plan import InvalidPlan, check_plan, parse_step
from ..values.agent import Agent
from ..values.errors import Mistake
from ..values.event import RunStarted
from ..values.located_yaml import ListNode, MalformedText, to_plain_value
from ..values.operation_path import parse_agent_name
from ..values.plan import WorkPlan
from ..values.yaml_parser import parse_yaml_mapping

HEADER = """\
# The plan. Edit it, then save and close the editor to approve the edited plan.
# If you change nothing or delete everything, the plan is neither approved nor rejected.
"""


def render_plan_document(plan: WorkPlan) -> str:
    """Return a plan as a YAML document that a person can edit."""
    steps = [msgspec.to_builtins(step) for step in plan.steps]
    body = yaml.safe_dump({"steps": steps}, sort_keys=False, allow_unicode=True, width=100, default_flow_style=False)
    return f"{HEADER}\n{body}"


def parse_plan_document(text: str, goal: str, members: Mapping[str, Agent], *, done: Sequence[str] = ()) -> WorkPlan:
    """Return the plan in an edited document. `done` contains the ids of the completed steps.

    Raise Mistake, with the line number, if the document is invalid.
    """
    try:
        document = parse_yaml_mapping(text)
    except MalformedText as error:
        raise Mistake(f"line {error.line} of the plan: {error}") from None
    listed = document.fields.get("steps")
    if not isinstance(listed, ListNode):
        raise Mistake(f"line {document.line} of the plan: expected a list of steps under the key 'steps'")
    steps = []
    for number, node in enumerate(listed.items, 1):
        try:
            steps.append(parse_step(to_plain_value(node), number))
        except InvalidPlan as error:
            raise Mistake(f"line {node.line} of the plan: {error}") from None
    try:
        return check_plan(WorkPlan(goal=goal, steps=tuple(steps)), members, done=done, may_allow=True)
    except InvalidPlan as error:
        lines = {step.id: node.line for step, node in zip(steps, listed.items, strict=True)}
        raise Mistake(_locate_problem(error.problems[0], lines, listed.line)) from None


def _locate_problem(problem: str, lines: Mapping[str, int], otherwise: int) -> str:
    """Return the problem, preceded by the line number of the step that it concerns."""
    line = next((line for id, line in lines.items() if problem.startswith(f"step {id!r}")), otherwise)
    return f"line {line} of the plan: {problem}"


def find_team_members(started: RunStarted, operation: str) -> dict[str, Agent]:
    """Return the members of the team that an operation's agent leads, keyed by their names in the team."""
    agents = {agent.name: agent for agent in started.agents}
    lead = agents.get(parse_agent_name(operation))
    return {} if lead is None or lead.team is None else list_members(lead, agents)
