"""Orchestrate: the lead plans, the workers work, the lead makes one answer of it; once."""

from __future__ import annotations

from ..core.operation import Operation
from ..core.session import Reply, Session
from ..values.agent import Agent
from ..values.errors import AgentFailed
from ..values.event import PlannedAssignment, TeamPlanned
from ..values.request import Answer, Request
from .dispatch import Assignment, Plan, find_shared_tasks, parse_plan
from .team_members import (
    TaskResult,
    TeamOptions,
    describe_workers,
    format_results,
    get_team_options,
    make_team_failure,
    resolve_members,
    run_assignments,
)
from .team_prompts import render_prompt
from .verdict import needs_iteration, neutralise

MOST_PLANS = 3
UNASSIGNED = "it says that more is needed, and assigns nothing"


class NothingAssigned(AgentFailed):
    """A lead that assigns nothing, however often it is asked."""


async def run_orchestrate(op: Operation, request: Request) -> Answer:
    """The lead's synthesis of what its workers did."""
    own, workers, lead = get_team_options(op), resolve_members(op), op.session()
    reply = await lead.ask(render_plan_prompt(op, own, request, workers))
    plan = await parse_plan_with_retries(op, own, request, workers, lead, reply)
    if not plan.assignments:
        return Answer(text=reply.text)
    results = await run_assignments(op, request, workers, plan.assignments)
    require_success(op, results)
    final = await lead.ask(render_synthesis_prompt(own, request, plan, results))
    return Answer(text=final.text, parts=tuple(result.part for result in results))


def render_plan_prompt(op: Operation, own: TeamOptions, request: Request, workers: dict[str, Agent]) -> str:
    """The first prompt of a lead."""
    routing = f"\n## Who does what\n{own.routing}\n" if own.routing else ""
    return render_prompt(
        own.prompts,
        "plan",
        lead="",
        request=request.prompt(),
        workers=describe_workers(workers),
        routing=routing,
    ).strip()


def render_synthesis_prompt(own: TeamOptions, request: Request, plan: Plan, results: list[TaskResult]) -> str:
    """The prompt for the answer: what came back, and what of the plan went to nobody."""
    missed = "; ".join([*describe_skipped(plan), *describe_shared_tasks(plan)])
    about = f"About your plan: {neutralise(missed)}\n" if missed else ""
    return render_prompt(
        own.prompts, "synthesis", request=request.original, results=format_results(results), skipped=about
    )


async def parse_plan_with_retries(
    op: Operation,
    own: TeamOptions,
    request: Request,
    workers: dict[str, Agent],
    lead: Session,
    reply: Reply,
    *,
    iteration: int = 1,
) -> Plan:
    """The plan in a reply; the lead is asked again where it assigns nothing.

    An empty plan is given back where the first reply itself is to be the answer, and in a later iteration,
    where it says that nothing is missing. A plan for strangers alone, or one that only says that more is needed, is
    neither: there is work, and nobody does it.
    """
    is_first = iteration == 1
    for attempt in range(MOST_PLANS + 1):
        plan = parse_plan(reply.text, list(workers))
        slips = [
            *describe_skipped(plan),
            *([UNASSIGNED] if not plan.assignments and needs_iteration(reply.text) else ()),
        ]
        if plan.assignments or (not is_first and not slips):
            return record_plan(op, plan, iteration=iteration)
        if is_first and own.answer_directly and attempt == 0 and not plan.skipped:
            return plan
        if attempt < MOST_PLANS:
            why = f" ({'; '.join(slips)})" if slips else ""
            reply = await lead.ask(render_prompt(own.prompts, "plan_again", why=why, names=", ".join(workers)))
    if is_first and own.dispatch == "force":
        return record_plan(op, Plan([Assignment(name, request.text) for name in workers], []), iteration=iteration)
    message = f"its lead assigned nothing to {', '.join(workers)}, though it was asked {MOST_PLANS + 1} times"
    raise NothingAssigned(op.make_error("failed", message).failure)


def record_plan(op: Operation, plan: Plan, *, iteration: int) -> Plan:
    """The plan, on the timeline."""
    assignments = tuple(PlannedAssignment(worker=one.worker, task=one.task) for one in plan.assignments)
    event = TeamPlanned(
        assignments=assignments,
        skipped=tuple(describe_skipped(plan)),
        iteration=iteration,
        flagged=tuple(describe_shared_tasks(plan)),
    )
    op.scope.record(event)
    return plan


def describe_skipped(plan: Plan) -> list[str]:
    """What of a plan was none, in words."""
    return [f"{one.name or 'nobody'}: {one.why}" for one in plan.skipped]


def describe_shared_tasks(plan: Plan) -> list[str]:
    """What is odd about the assignments, in words: a task is meant for one worker."""
    return [f"{', '.join(one.workers)} were given the same task" for one in find_shared_tasks(plan.assignments)]


def require_success(op: Operation, results: list[TaskResult]) -> None:
    """Success needs somebody who did something. Raises Failed."""
    if not any(result.state == "succeeded" for result in results):
        raise make_team_failure(op, [result.part for result in results])
