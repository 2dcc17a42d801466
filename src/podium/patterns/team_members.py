"""What team modes share: the members by name, work that is shared out to them, and what came back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import msgspec
from anyio import create_task_group
from msgspec import Struct, structs

from ..core.operation import Operation
from ..values.agent import Agent, Member
from ..values.errors import AgentFailed, Mistake
from ..values.request import Note, Outcome, Part, Request, escape_headings
from .dispatch import Assignment, merge
from .team_prompts import SHARED, render_prompt
from .verdict import neutralise

HEADING = "###? "
"""How the headings begin that tell results apart."""

GENERIC = "You are a worker agent. Complete the following task thoroughly."


class TeamOptions(Struct, frozen=True, kw_only=True):
    """The keys of a team, with what holds where it says nothing."""

    max_iterations: int = 5
    dispatch: Literal["ask", "force"] = "ask"
    answer_directly: bool = False
    participation: Literal["any", "all"] = "any"
    checks: tuple[str, ...] = ()
    adjust: Literal["ask", "auto"] = "ask"
    worker_timeout: float = 600.0
    collection_timeout: float = 900.0
    termination: Literal["consensus", "max_rounds", "coordinator_decides"] = "consensus"
    max_rounds: int = 10
    round_timeout: float = 300.0
    worktrees: Literal["shared", "team", "lead", "each"] = "shared"
    shared_context: str = ""
    routing: str = ""
    prompts: dict[str, str] = {}


class TaskResult(NamedTuple):
    """What became of one worker's task."""

    worker: str
    task: str
    part: Part
    seconds: float

    @property
    def state(self) -> Outcome:
        return self.part.outcome


def get_team_options(op: Operation) -> TeamOptions:
    """The team's own keys."""
    assert op.agent.team is not None
    return msgspec.convert(op.agent.team.options, TeamOptions)


def validate_team_options(agent: Agent) -> None:
    """Refuse a team whose own keys have values that they cannot have. Raises Mistake."""
    if agent.team is None:
        return
    try:
        msgspec.convert(agent.team.options, TeamOptions)
    except msgspec.ValidationError as error:
        raise Mistake(f"{agent.name} leads a team that cannot work: {error}") from None


def resolve_members(op: Operation) -> dict[str, Agent]:
    """The members of the team by the names that it has for them, each as the team wants it."""
    assert op.agent.team is not None
    own = get_team_options(op)
    found: dict[str, Agent] = {}
    for member in op.agent.team.members:
        agent = _with_isolation(as_member(_without_own_team(op.agents[member.agent], op.agent), member), own.worktrees)
        name, number = agent.name, 2
        while name in found:
            name, number = f"{agent.name}-{number}", number + 1
        found[name] = agent if name == agent.name else structs.replace(agent, name=name)
    return found


def _without_own_team(agent: Agent, lead: Agent) -> Agent:
    """The agent; a lead that is listed among its own members takes part for itself, and leads no second team."""
    return structs.replace(agent, team=None, advisors=None) if agent.team == lead.team else agent


def _with_isolation(agent: Agent, worktrees: str) -> Agent:
    """An agent where the team wants it, unless its own file says otherwise."""
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
    """An agent with what a team changes about it."""
    changes: dict[str, Any] = {
        "name": member.name,
        "role": member.role,
        "capabilities": member.capabilities,
        "model": member.model,
        "prompt": member.prompt,
    }
    return structs.replace(agent, **{key: value for key, value in changes.items() if value})


def describe_workers(workers: dict[str, Agent]) -> str:
    """The workers as a lead reads of them."""
    return "\n".join(
        f"- {name} ({agent.model or 'default model'}): {agent.description or first_line(agent.prompt) or 'a worker'}"
        for name, agent in workers.items()
    )


async def run_assignments(
    op: Operation, request: Request, workers: dict[str, Agent], assignments: Sequence[Assignment]
) -> list[TaskResult]:
    """Let each worker do its tasks, all at once; what came of it, in member order.

    One that fails or takes too long is an outcome like any other, and stops nobody else.
    """
    own = get_team_options(op)
    limit = min(own.worker_timeout, own.collection_timeout)
    order = list(workers)
    merged = sorted(merge(list(assignments)), key=lambda one: order.index(one.worker))
    children = [op.child(as_worker(workers[assignment.worker]), "member") for assignment in merged]
    results: dict[int, TaskResult] = {}

    async def run_assignment(place: int, child: Operation, assignment: Assignment) -> None:
        part = await child.run_as_part(make_task_request(own, request, assignment.task), timeout=limit)
        results[place] = TaskResult(assignment.worker, assignment.task, part, child.duration)

    async with create_task_group() as group:
        for place, (child, assignment) in enumerate(zip(children, merged, strict=True)):
            group.start_soon(run_assignment, place, child, assignment)
    return [results[place] for place in range(len(merged))]


def as_worker(agent: Agent) -> Agent:
    """An agent that is given a task; one that nobody told who it is is told at least that."""
    return agent if agent.prompt.strip() else structs.replace(agent, prompt=GENERIC)


def make_task_request(own: TeamOptions, request: Request, task: str) -> Request:
    """A worker's request: its task, with the person's own words and what the team shares as context."""
    shared = SHARED.format(shared=own.shared_context) if own.shared_context else ""
    text = render_prompt(own.prompts, "task", shared=shared, request=request.original, task=task)
    return Request(text=text, origin=request.original)


def format_results(results: Sequence[TaskResult]) -> str:
    """Results as a lead or judge reads them: nothing in them reads as an assignment or a verdict."""
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
    """Answers side by side, a heading each."""
    return "\n\n".join(
        f"### From {part.agent}\n\n"
        + escape_headings(part.text if part.failure is None else f"unavailable: {part.failure}", "### From ")
        for part in parts
    )


def make_team_failure(op: Operation, parts: Sequence[Part]) -> AgentFailed:
    """The failure of a team in which nobody came to anything."""
    failures = [part.failure for part in parts if part.failure is not None]
    is_spent = all(failure.kind == "budget" for failure in failures)
    reasons = "; ".join(map(str, failures))
    return op.make_error("budget" if is_spent else "failed", f"no member of its team came to anything: {reasons}")


def make_answer_notes(parts: Sequence[Part]) -> tuple[Note, ...]:
    """What others said before, as context."""
    return tuple(
        Note(title=f"answer of {part.agent}" if part.failure is None else f"{part.agent} has no answer", text=part.text)
        for part in parts
    )


def first_line(text: str) -> str:
    """The first line with words."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
