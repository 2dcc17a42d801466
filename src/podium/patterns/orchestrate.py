"""Run a team in orchestrate mode: the lead plans, the workers do their tasks, and the lead writes the answer."""

from __future__ import annotations

from ..core.operation import Operation
from ..core.session import Reply, Session
from ..values.agent import Agent
from ..values.errors import AgentFailed
from ..values.event import PlannedAssignment, TeamPlanned
from ..values.request import Answer, Request
from .dispatch import Assignment, Plan, find_shared_tasks, parse_plan
from .member_tasks import (
    TaskResult,
    TeamOptions,
    describe_workers,
    format_results,
    get_team_options,
    list_aliases,
    make_team_failure,
    resolve_members,
    run_assignments,
)
from .team_prompts import render_prompt
from .verdict import GROUP_COMPLETE, claims_completion, needs_iteration, neutralise

MOST_PLANS = 3
UNASSIGNED = "it says that more is needed, but assigns nothing"
UNCLAIMED = f"if nothing is missing, say so with a line that says only {GROUP_COMPLETE}"


class NothingAssigned(AgentFailed):
    """The lead assigned nothing, even after it was asked again."""


async def run_orchestrate(op: Operation, request: Request) -> Answer:
    """Return the lead's synthesis of its workers' results."""
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
    """Render a lead's first prompt."""
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
    """Render the prompt for the synthesis, with the results and the plan items that were not assigned to a worker."""
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
    may_answer: bool = True,
) -> Plan:
    """Return the plan in a reply. Ask the lead again if the plan assigns nothing.

    An empty plan is accepted in two cases: the first reply is itself the answer, and `may_answer` is set; or the lead
    uses the sentinel in a later iteration to say that the goal is met. A plan with only unknown
    workers, or with only a request for more work, does not count as empty, because work remains to be assigned.
    """
    is_first = iteration == 1
    for attempt in range(MOST_PLANS + 1):
        plan = parse_plan(reply.text, list(workers), aliases=list_aliases(workers))
        if plan.assignments:
            return record_plan(op, plan, iteration=iteration)
        slips = describe_skipped(plan)
        if needs_iteration(reply.text):
            slips.append(UNASSIGNED)
        elif not is_first and not slips:
            if claims_completion(reply.text) or was_claim_accepted(op, iteration):
                return record_plan(op, plan, iteration=iteration)
            slips.append(UNCLAIMED)
        if may_answer and is_first and own.answer_directly and attempt == 0 and not slips:
            return plan
        if attempt < MOST_PLANS:
            why = f" ({'; '.join(slips)})" if slips else ""
            reply = await lead.ask(render_prompt(own.prompts, "plan_again", why=why, names=", ".join(workers)))
    if is_first and own.dispatch == "force":
        return record_plan(op, Plan([Assignment(name, request.text) for name in workers], []), iteration=iteration)
    message = f"its lead was asked {MOST_PLANS + 1} times and assigned nothing to {', '.join(workers)}"
    raise NothingAssigned(op.make_error("failed", message).failure)


def was_claim_accepted(op: Operation, iteration: int) -> bool:
    """Return whether the timeline contains a plan without assignments for this iteration.

    Earlier versions accepted such a plan without the sentinel, and their runs must stay resumable.
    """
    plans = op.scope.timeline.find_events_below(op.scope.path, TeamPlanned, operation=op.scope.path)
    return any(plan.iteration == iteration and not plan.assignments for plan in plans)


def record_plan(op: Operation, plan: Plan, *, iteration: int) -> Plan:
    """Record the plan on the timeline and return it."""
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
    """Describe the skipped items of a plan."""
    return [f"{one.name or 'unnamed item'}: {one.why}" for one in plan.skipped]


def describe_shared_tasks(plan: Plan) -> list[str]:
    """Describe the tasks that were assigned to several workers. Each task should be assigned to one worker."""
    return [f"{', '.join(one.workers)} were given the same task" for one in find_shared_tasks(plan.assignments)]


def require_success(op: Operation, results: list[TaskResult]) -> None:
    """Raise AgentFailed if no worker succeeded."""
    if not any(result.state == "succeeded" for result in results):
        raise make_team_failure(op, [result.part for result in results])
