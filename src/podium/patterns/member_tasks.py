"""Read a team's options and members, run assignments, and format results. All team modes use these functions.

An agent calls its sub-agents with tools, and decides when to call them and what to ask. Simultaneous calls run
concurrently. Before a run starts, Podium checks how deeply calls are nested, and that no agent calls itself, even
indirectly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple, TypeVar

import msgspec
from anyio import CapacityLimiter, create_task_group, current_time
from msgspec import structs

from ..core.decision_state import parse_vote_rule
from ..core.engine import Tool, ToolAnswer
from ..core.operation import Operation
from ..core.scope import Scope
from ..values.agent import Agent, Member, Team
from ..values.errors import AgentFailed, Mistake, format_failures
from ..values.event import ToolUse
from ..values.plain_text import format_count, truncate_text
from ..values.request import Note, Outcome, Part, Request, escape_headings
from ..values.team_modes import MODES, OrchestrateOptions, TeamOptions
from ..values.tool_table import DELEGATING_TOOLS, STEP_TOOLS, VOTING_TOOLS
from .dispatch import Assignment, merge
from .team_prompts import SHARED, render_prompt
from .verdict import neutralise

TIMEOUT = 3600.0


HEADING = "###? "
"""Pattern for the start of the headings that separate results."""
LONGEST_EXPERTISE = 400
ACTIVE_TOOLS = frozenset((*DELEGATING_TOOLS, *VOTING_TOOLS, *STEP_TOOLS))
"""The tools for delegating work, for proposing decisions and voting, and for handing over or blocking a plan step."""
GENERIC = "You are a worker agent. Complete the following task thoroughly."

Options = TypeVar("Options", bound=TeamOptions)


class TaskResult(NamedTuple):
    """The result of one worker's task."""

    worker: str
    task: str
    part: Part
    seconds: float

    @property
    def state(self) -> Outcome:
        return self.part.outcome


def get_team_options(op: Operation, kind: type[Options]) -> Options:
    """Return the options that the operation's team has in its mode."""
    assert op.agent.team is not None
    return _convert_options(op.agent.team, kind)


def read_team_options(lead: Agent) -> TeamOptions:
    """Return the options of the team that an agent leads, in its mode, or the defaults if it leads none."""
    if lead.team is None:
        return TeamOptions()
    return _convert_options(lead.team, MODES.get(lead.team.mode, TeamOptions))


def _convert_options(team: Team, kind: type[Options]) -> Options:
    return msgspec.convert({**team.options, "evaluator": team.evaluator}, kind)


def validate_team_options(agent: Agent) -> None:
    """Raise Mistake if the options of the agent's team have invalid values."""
    if agent.team is None:
        return
    try:
        own = read_team_options(agent)
        rule = parse_vote_rule(own.vote)
    except (msgspec.ValidationError, Mistake) as error:
        raise Mistake(f"{agent.name} leads a team with invalid options: {error}") from None
    if problem := own.find_problem():
        raise Mistake(f"{agent.name} {problem}")
    if rule.quorum > len(agent.team.members) > 0:
        count = format_count(len(agent.team.members), "member")
        raise Mistake(f"{agent.name} leads a team of {count} with vote: {own.vote}; use a quorum that it can reach")


def resolve_members(op: Operation) -> dict[str, Agent]:
    """Return the members of the operation's team, with the team's changes applied, keyed by unique name."""
    return list_members(op.agent, op.agents)


def list_members(lead: Agent, agents: Mapping[str, Agent]) -> dict[str, Agent]:
    """Return the members of a lead's team, with the team's changes applied, keyed by unique name."""
    assert lead.team is not None
    worktrees = read_team_options(lead).member_worktrees
    found: dict[str, Agent] = {}
    for member in lead.team.members:
        agent = _with_isolation(as_member(_without_own_team(agents[member.agent], lead), member), worktrees)
        name, number = agent.name, 2
        while name in found:
            name, number = f"{agent.name}-{number}", number + 1
        found[name] = agent if name == agent.name else structs.replace(agent, name=name)
    return found


def _without_own_team(agent: Agent, lead: Agent) -> Agent:
    """Return the agent unchanged or, if it is the team's lead, a copy without its team and advisors.

    A lead that is also a member of its team takes part as a single agent.
    """
    return structs.replace(agent, team=None, advisors=None) if agent.team == lead.team else agent


def _with_isolation(agent: Agent, worktrees: str) -> Agent:
    """Return the agent with the isolation that the team specifies, unless the agent's file specifies another."""
    if agent.isolation != "shared":
        return agent
    match worktrees:
        case "each":
            return structs.replace(agent, isolation="process")
        case "lead":
            return structs.replace(agent, isolation="together")
        case _:
            return agent


def as_member(agent: Agent, member: Member) -> Agent:
    """Return the agent with the team's changes applied."""
    changes: dict[str, str | tuple[str, ...]] = {
        "name": member.name,
        "role": member.role,
        "capabilities": member.capabilities,
        "model": member.model,
        "prompt": member.prompt,
    }
    return structs.replace(agent, **{key: value for key, value in changes.items() if value})


def list_aliases(workers: Mapping[str, Agent]) -> dict[str, str]:
    """Map display names to workers, so that a lead can use them. Names that several workers share are excluded."""
    shown = {name: agent.display_name for name, agent in workers.items() if agent.display_name}
    counts = Counter(alias.casefold() for alias in shown.values())
    return {alias: name for name, alias in shown.items() if counts[alias.casefold()] == 1}


def describe_workers(workers: Mapping[str, Agent]) -> str:
    """Describe the workers for the lead's prompt: their names, models, roles and expertise."""
    aliases = {name: alias for alias, name in list_aliases(workers).items() if alias.casefold() != name}
    return "\n".join(
        f"- {name}{f', also called {aliases[name]}' if name in aliases else ''} "
        f"({agent.model or 'default model'}): {_describe_expertise(agent)}"
        for name, agent in workers.items()
    )


def _describe_expertise(agent: Agent) -> str:
    about = agent.description or first_line(agent.prompt)
    role = ". ".join(dict.fromkeys(text.rstrip(".") for text in (agent.role, about) if text)) or "a worker"
    if not agent.capabilities:
        return role
    return f"{role}. Expertise: {truncate_text(', '.join(agent.capabilities), LONGEST_EXPERTISE)}"


async def run_assignments(
    op: Operation,
    request: Request,
    workers: dict[str, Agent],
    assignments: Sequence[Assignment],
    *,
    before: dict[str, Operation] | None = None,
) -> list[TaskResult]:
    """Run the workers on their tasks, as many at once as the team allows, and return the results in member order.

    If a worker fails or times out, the others continue. `before` maps each worker to its last operation, whose
    conversation the worker continues. This function updates the mapping.
    """
    own = get_team_options(op, OrchestrateOptions)
    last = {} if before is None else before
    order = list(workers)
    merged = sorted(merge(list(assignments)), key=lambda one: order.index(one.worker))
    children = [
        op.child(as_worker(workers[assignment.worker]), "member", after=last.get(assignment.worker))
        for assignment in merged
    ]
    last.update(zip((assignment.worker for assignment in merged), children, strict=True))
    requests = [_make_task_request(own, request, assignment.task) for assignment in merged]
    parts = await run_members(
        children,
        requests,
        max_concurrent=own.max_concurrent,
        timeout=own.worker_timeout,
        collection_timeout=own.collection_timeout,
    )
    return [
        TaskResult(assignment.worker, assignment.task, part, child.duration)
        for assignment, part, child in zip(merged, parts, children, strict=True)
    ]


async def run_members(
    members: Sequence[Operation],
    requests: Sequence[Request],
    *,
    max_concurrent: int | None,
    timeout: float,
    collection_timeout: float = inf,
) -> list[Part]:
    """Run the members, `max_concurrent` at once, and return their outcomes in the same order.

    Each member can run for `timeout` seconds, and all members together for `collection_timeout` seconds.
    """
    parts: dict[int, Part] = {}
    limiter = CapacityLimiter(max_concurrent or inf)
    deadline = current_time() + collection_timeout

    async def run_member(place: int, member: Operation, request: Request) -> None:
        async with limiter:
            # Members that start at once get the full time; only members that had to wait get less.
            left = collection_timeout if place < limiter.total_tokens else max(0.0, deadline - current_time())
            parts[place] = await member.run_as_part(request, timeout=min(timeout, left))

    async with create_task_group() as group:
        for place, (member, request) in enumerate(zip(members, requests, strict=True)):
            group.start_soon(run_member, place, member, request)
    return [parts[place] for place in range(len(members))]


def as_worker(agent: Agent) -> Agent:
    """Return the agent, with a generic worker prompt if it has no prompt."""
    return agent if agent.prompt.strip() else structs.replace(agent, prompt=GENERIC)


def as_writer(agent: Agent) -> Agent:
    """Return a copy of the agent that only writes a reply: it reads no files and has no tools of its own."""
    return structs.replace(as_reader(agent), tools=())


def as_reader(agent: Agent, *, name: str = "") -> Agent:
    """Return a read-only copy of the agent for planning, reviewing or voting, with another name if one is given.

    The copy works alone in this process. It cannot start other agents or hand over work.
    """
    tools = agent.tools
    if tools is not None:
        tools = tuple(tool for tool in tools if tool not in ACTIVE_TOOLS and not tool.startswith("Agent("))
    return structs.replace(
        agent,
        name=name or agent.name,
        tools=tools,
        agents=(),
        team=None,
        router=None,
        advisors=None,
        handoff=None,
        output="text",
        isolation="shared",
        permission_mode="plan",
    )


def _make_task_request(own: TeamOptions, request: Request, task: str) -> Request:
    """Build a worker's request: its task, with the original request and the team's shared context."""
    shared = SHARED.format(shared=own.shared_context) if own.shared_context else ""
    text = render_prompt(own.prompts, "task", shared=shared, request=request.original, task=task)
    return Request(text=text, origin=request.original)


def add_shared_context(own: TeamOptions, request: Request, member: Agent) -> Request:
    """Return the request with the team's shared context as a note, unless the member's prompt has it already.

    Notes are not part of the request's digest, so a run that began without the context can still be resumed.
    """
    if not own.shared_context.strip() or own.shared_context in member.prompt:
        return request
    shared = Note(title="knowledge shared by the team", text=own.shared_context)
    return structs.replace(request, notes=(shared, *request.notes))


def format_results(results: Sequence[TaskResult]) -> str:
    """Format results for a lead or judge, neutralised so that nothing in them is parsed as an assignment or verdict."""
    return "\n\n".join(
        f"### {result.worker} ({result.state}, {result.seconds:.0f} s)\n"
        f"Task: {escape_headings(neutralise(result.task), HEADING)}\n\n"
        f"{escape_headings(_format_result_text(result), HEADING)}"
        for result in results
    )


def _format_result_text(result: TaskResult) -> str:
    if result.part.failure is not None:
        return f"No result: {neutralise(result.part.failure.describe_to(result.worker))}"
    return neutralise(result.part.text)


def format_answers(parts: Sequence[Part]) -> str:
    """Format answers one after another, each under its own heading."""
    return "\n\n".join(
        f"### From {part.agent}\n\n"
        + escape_headings(part.text if part.failure is None else f"unavailable: {part.failure}", "### From ")
        for part in parts
    )


def make_team_failure(op: Operation, parts: Sequence[Part]) -> AgentFailed:
    """Return the error for a team in which no member succeeded."""
    failures = [part.failure for part in parts if part.failure is not None]
    is_spent = all(failure.kind == "budget" for failure in failures)
    reasons = format_failures(failures)
    return op.make_error("budget" if is_spent else "failed", f"no member of its team succeeded: {reasons}")


def make_answer_notes(parts: Sequence[Part]) -> tuple[Note, ...]:
    """Return notes for the next member's request: the answers of the members that have already run."""
    return tuple(
        Note(
            title=f"answer from {part.agent}" if part.failure is None else f"{part.agent} has no answer", text=part.text
        )
        for part in parts
    )


def first_line(text: str) -> str:
    """Return the first line that is not blank, or an empty string."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def make_subagent_tools(op: Operation) -> tuple[Tool, ...]:
    """Create a tool for each agent that the operation's agent can call."""
    names = dict.fromkeys(reference.name for reference in op.agent.references() if reference.kind == "tool")
    return tuple(_make_subagent_tool(op, op.agents[name]) for name in names)


def _make_subagent_tool(op: Operation, agent: Agent) -> Tool:
    async def answer_call(call: ToolUse, scope: Scope) -> ToolAnswer:
        text = call.arguments.get("request")
        if not isinstance(text, str) or not text.strip():
            return ToolAnswer(text=f"{agent.name} needs a request: say in `request` what it should do.", is_error=True)
        part = await op.child(agent.name, "tool", at=scope).run_as_part(Request(text=text, origin=op.request.original))
        if part.failure is not None:
            return ToolAnswer(text=f"{agent.name} failed: {part.failure.describe_to(agent.name)}", is_error=True)
        return ToolAnswer(text=part.text)

    return Tool(
        name=agent.name.replace(":", "_"),
        description=agent.description or f"The agent {agent.name}.",
        parameters={
            "type": "object",
            "properties": {
                "request": {
                    "type": "string",
                    "description": "What the agent should do, with all the context it needs: it sees nothing else.",
                }
            },
            "required": ["request"],
        },
        answer=answer_call,
        timeout=TIMEOUT,
    )
