"""Run a team in orchestrate mode: the lead plans, the workers do their tasks, and the lead writes the answer."""

from __future__ import annotations

from ..core.operation import Operation
from ..core.session import Session
from ..values.agent import Agent
from ..values.errors import AgentFailed
from ..values.event import PlannedAssignment, TeamPlanned
from ..values.request import Answer, Request
from ..values.team_modes import OrchestrateOptions
from .answer_check import ask_without_plan
from .dispatch import Assignment, Plan, find_shared_tasks
from .json_output import make_assignments_format
from .member_tasks import (
    TaskResult,
    describe_workers,
    format_results,
    get_team_options,
    list_aliases,
    make_team_failure,
    resolve_members,
    run_assignments,
)
from .plan_drafting import PlanReply, is_plan, read_plan_reply
from .team_prompts import render_prompt
from .verdict import GROUP_COMPLETE, needs_iteration, neutralise

MOST_PLANS = 3
UNASSIGNED = "it says that more work is needed, but assigns no tasks"
UNREADABLE_PLAN = "its tasks could not be read"
UNCLAIMED = f"if nothing is missing, reply with a line that contains only {GROUP_COMPLETE}"


class NothingAssigned(AgentFailed):
    """The lead assigned nothing, even after it was asked again."""


async def run_orchestrate(op: Operation, request: Request) -> Answer:
    """Return the lead's synthesis of its workers' results, or the lead's own answer if it assigns nothing.

    Raise AgentFailed if no worker succeeds, or if the lead must assign tasks and does not.
    """
    own, workers, lead = get_team_options(op, OrchestrateOptions), resolve_members(op), op.session()
    words = render_plan_prompt(op, own, request, workers)
    planned = await ask_for_plan(op, own, request, workers, lead, words)
    plan = planned.plan
    if not plan.assignments:
        return Answer(text=planned.answer)
    results = await run_assignments(op, request, workers, plan.assignments)
    require_success(op, results)
    text = await ask_without_plan(op, lead, render_synthesis_prompt(own, request, plan, results), workers)
    return Answer(text=text, parts=tuple(result.part for result in results))


def render_plan_prompt(op: Operation, own: OrchestrateOptions, request: Request, workers: dict[str, Agent]) -> str:
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


def render_synthesis_prompt(own: OrchestrateOptions, request: Request, plan: Plan, results: list[TaskResult]) -> str:
    """Render the prompt for the synthesis, with the results and the plan items that were not assigned to a worker."""
    missed = "; ".join([*describe_skipped(plan), *describe_shared_tasks(plan)])
    about = f"About your plan: {neutralise(missed)}\n" if missed else ""
    return render_prompt(
        own.prompts, "synthesis", request=request.original, results=format_results(results), skipped=about
    )


async def ask_for_plan(
    op: Operation,
    own: OrchestrateOptions,
    request: Request,
    workers: dict[str, Agent],
    lead: Session,
    words: str,
    *,
    iteration: int = 1,
    may_answer: bool = True,
) -> PlanReply:
    """Ask the lead for a plan, and ask again if the plan assigns nothing. Return the reply with the plan.

    An empty plan is accepted in two cases. In the first iteration, the lead's first reply can itself be the answer, if
    both `may_answer` and the team's option `answer_directly` are set. In a later iteration, the lead can use the
    sentinel to say that the goal is met. A plan with only unknown workers, or with only a request for more work, does
    not count as empty, because work remains to be assigned.

    If the lead still assigns nothing in the first iteration, and the team has `dispatch: force`, the plan gives the
    request to all workers. Otherwise, raise NothingAssigned.
    """
    is_first = iteration == 1
    can_answer = may_answer and is_first and own.answer_directly
    wanted = make_assignments_format(workers, may_answer=can_answer, may_complete=not is_first)
    for attempt in range(MOST_PLANS + 1):
        reply = await lead.ask(words, reply_format=wanted)
        read = read_plan_reply(reply.text, list(workers), aliases=list_aliases(workers))
        if read.plan.assignments:
            _record_plan(op, read.plan, iteration=iteration)
            return read
        slips = describe_skipped(read.plan)
        if needs_iteration(reply.text):
            slips.append(UNASSIGNED)
        elif not is_first and not slips:
            if read.claims_completion or _was_claim_accepted(op, iteration):
                _record_plan(op, read.plan, iteration=iteration)
                return read
            slips.append(UNCLAIMED)
        elif read.problem and not slips:
            slips.append(read.problem)
        elif not slips and is_plan(reply.text, workers, aliases=list_aliases(workers)):
            slips.append(UNREADABLE_PLAN)
        if can_answer and attempt == 0 and not slips:
            return read
        if attempt < MOST_PLANS:
            words = _render_plan_correction(own, workers, slips, is_repeated=attempt > 0)
            await lead.refuse_reply()
    if is_first and own.dispatch == "force":
        forced = Plan([Assignment(name, request.text) for name in workers], [])
        return PlanReply(_record_plan(op, forced, iteration=iteration), "", claims_completion=False)
    message = f"its lead was asked for a plan {MOST_PLANS + 1} times, but assigned no task to {', '.join(workers)}"
    raise NothingAssigned(op.make_error("failed", message).failure)


def _render_plan_correction(
    own: OrchestrateOptions, workers: dict[str, Agent], slips: list[str], *, is_repeated: bool
) -> str:
    """Render the prompt that asks the lead to correct a plan without assignments.

    The prompt has a different wording if the lead was already asked for a correction.
    """
    # If a team has its own wording for the first correction but not for the repeated one, both use that wording.
    has_own_words = "plan_again" in own.prompts and "plan_once_more" not in own.prompts
    name = "plan_once_more" if is_repeated and not has_own_words else "plan_again"
    why = f" ({'; '.join(slips)})" if slips else ""
    return render_prompt(own.prompts, name, why=why, names=", ".join(workers))


def _was_claim_accepted(op: Operation, iteration: int) -> bool:
    """Return whether the lead's claim that nothing is missing was already accepted in this iteration.

    In that case, the timeline contains a plan without assignments for the iteration. Earlier versions accepted the
    claim even if the reply did not contain the sentinel, and runs from these versions must stay resumable.
    """
    plans = op.scope.timeline.find_events_below(op.scope.path, TeamPlanned, operation=op.scope.path)
    return any(plan.iteration == iteration and not plan.assignments for plan in plans)


def _record_plan(op: Operation, plan: Plan, *, iteration: int) -> Plan:
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
