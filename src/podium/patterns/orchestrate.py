"""Orchestrate: the lead plans, the workers work, the lead makes one answer of it; once."""

from __future__ import annotations

from ..core.operation import Operation
from ..core.session import Reply, Session
from ..values.agent import Agent
from ..values.errors import Failed
from ..values.event import Assigned, TeamPlanned
from ..values.request import Answer, Request
from .dispatch import Assignment, Plan, parse_plan, shared_tasks
from .team_members import Options, Worked, described, dispatched, members, nobody_succeeded, options, told
from .team_prompts import filled
from .verdict import needs_iteration, neutralise

MOST_PLANS = 3
UNASSIGNED = "it says that more is needed, and assigns nothing"


class Unplanned(Failed):
    """A lead that assigns nothing, however often it is asked."""


async def orchestrate(op: Operation, request: Request) -> Answer:
    """The lead's synthesis of what its workers did."""
    own, workers, lead = options(op), members(op), op.session()
    reply = await lead.ask(planning(op, own, request, workers))
    plan = await planned(op, own, request, workers, lead, reply)
    if not plan.assignments:
        return Answer(text=reply.text)
    results = await dispatched(op, request, workers, plan.assignments)
    must_have_worked(op, results)
    final = await lead.ask(synthesis(own, request, plan, results))
    return Answer(text=final.text, parts=tuple(result.part for result in results))


def planning(op: Operation, own: Options, request: Request, workers: dict[str, Agent]) -> str:
    """The first prompt of a lead."""
    routing = f"\n## Who does what\n{own.routing}\n" if own.routing else ""
    return filled(
        own.prompts,
        "plan",
        lead="",
        request=request.prompt(),
        workers=described(workers),
        routing=routing,
    ).strip()


def synthesis(own: Options, request: Request, plan: Plan, results: list[Worked]) -> str:
    """The prompt for the answer: what came back, and what of the plan went to nobody."""
    missed = "; ".join([*skipped(plan), *flagged(plan)])
    about = f"About your plan: {neutralise(missed)}\n" if missed else ""
    return filled(own.prompts, "synthesis", request=request.original, results=told(results), skipped=about)


async def planned(
    op: Operation,
    own: Options,
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
        slips = [*skipped(plan), *([UNASSIGNED] if not plan.assignments and needs_iteration(reply.text) else ())]
        if plan.assignments or (not is_first and not slips):
            return recorded(op, plan, iteration=iteration)
        if is_first and own.answer_directly and attempt == 0 and not plan.skipped:
            return plan
        if attempt < MOST_PLANS:
            why = f" ({'; '.join(slips)})" if slips else ""
            reply = await lead.ask(filled(own.prompts, "plan_again", why=why, names=", ".join(workers)))
    if is_first and own.dispatch == "force":
        return recorded(op, Plan([Assignment(name, request.text) for name in workers], []), iteration=iteration)
    message = f"its lead assigned nothing to {', '.join(workers)}, though it was asked {MOST_PLANS + 1} times"
    raise Unplanned(op.failed("failed", message).failure)


def recorded(op: Operation, plan: Plan, *, iteration: int) -> Plan:
    """The plan, on the timeline."""
    assignments = tuple(Assigned(worker=one.worker, task=one.task) for one in plan.assignments)
    event = TeamPlanned(
        assignments=assignments, skipped=tuple(skipped(plan)), iteration=iteration, flagged=tuple(flagged(plan))
    )
    op.scope.record(event)
    return plan


def skipped(plan: Plan) -> list[str]:
    """What of a plan was none, in words."""
    return [f"{one.name or 'nobody'}: {one.why}" for one in plan.skipped]


def flagged(plan: Plan) -> list[str]:
    """What is odd about the assignments, in words: a task is meant for one worker."""
    return [f"{', '.join(one.workers)} were given the same task" for one in shared_tasks(plan.assignments)]


def must_have_worked(op: Operation, results: list[Worked]) -> None:
    """Success needs somebody who did something. Raises Failed."""
    if not any(result.state == "succeeded" for result in results):
        raise nobody_succeeded(op, [result.part for result in results])
