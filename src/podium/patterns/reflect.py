"""Reflect: plan, work, judge, and again, until the goal is met or there is a reason to stop.

A team without members is an agent that reflects alone. Whether a judge's word holds belongs to
`standing`, what might be changed on the way to `adjust`.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from anyio import sleep

from ..core.operation import Operation
from ..values.errors import Failed, FailureKind
from ..values.event import Evaluated, IterationFailed, ReflectEnd, ReflectEnded
from ..values.request import Answer, Request
from .delegation_tools import delegating
from .dispatch import Plan
from .loop_state import Standing, Verdict, judged, looked_for_repetition
from .orchestrate import Unplanned, flagged, must_have_worked, planned, planning, skipped, synthesis
from .subagents import subagents
from .team_adjustment import propose
from .team_members import Options, Worked, dispatched, members, options
from .team_prompts import filled
from .verdict import answer_of, is_complete, missing, neutralise, parse_score, self_score

GOAL = 0.9
MOST_ERRORS = 3
RETRY_SECONDS = 2.0


async def reflect(op: Operation, request: Request) -> Answer:
    """The synthesis that met the goal. Raises Failed, with how the loop ended, where none did."""
    assert op.agent.team is not None
    work: Work = Teamwork(op, request) if op.agent.team.members else await Alone.of(op, request)
    own, standing = options(op), work.standing
    end, iteration, why = await _looped(op, own, work)
    score = standing.scores[-1] if standing.scores else 0.0
    op.scope.record(ReflectEnded(end=end, iterations=iteration, score=score, most=own.max_iterations))
    text = answer_of(standing.synthesis)
    if end == "goal_met":
        return Answer(text=text, parts=standing.parts)
    kind: FailureKind = "budget" if end == "budget_exhausted" else "limit" if end == "max_iterations" else "failed"
    message = f"the goal was not met: {_words(end)} after {iteration} of {own.max_iterations} iterations"
    raise op.failed(kind, f"{message} ({why})" if why else message, so_far=text)


class Work(Protocol):
    """What is done in each iteration, and how it stands."""

    standing: Standing

    async def iterate(self, iteration: int) -> bool:
        """Work and judge once. Whether the goal is met."""
        ...


class Ended(NamedTuple):
    """How a loop ended, in which iteration, and the error that ended it, if any."""

    end: ReflectEnd
    iteration: int
    why: str = ""


async def _looped(op: Operation, own: Options, work: Work) -> Ended:
    """Iterate until there is a reason to stop."""
    iteration, errors = 1, 0
    while True:
        try:
            if await work.iterate(iteration):
                return Ended("goal_met", iteration)
        except Failed as error:
            errors += 1
            why = str(error.failure)
            if error.failure.kind == "budget":
                return Ended("budget_exhausted", iteration, why)
            is_over = errors == MOST_ERRORS or isinstance(error, Unplanned)
            await _noted(op, IterationFailed(iteration=iteration, message=why), is_over=is_over)
            if is_over:
                return Ended("error_budget", iteration, why)
            continue
        errors = 0
        if work.standing.stall.is_stalled:
            return Ended("stalled", iteration)
        if iteration == own.max_iterations:
            return Ended("max_iterations", iteration)
        iteration += 1


async def _noted(op: Operation, failed: IterationFailed, *, is_over: bool) -> None:
    """Record what went wrong, and wait a little before the next try; a resumed run has waited already."""
    place = op.scope.next("retry")
    if place.recall(IterationFailed) is None:
        place.settle(failed)
        if not is_over:
            await sleep(RETRY_SECONDS)


class Teamwork:
    """A lead and its workers: plan, work, synthesis, verdict."""

    def __init__(self, op: Operation, request: Request) -> None:
        assert op.agent.team is not None
        self.standing = Standing()
        self._op = op
        self._request = request
        self._own = options(op)
        self._workers = members(op)
        self._lead = op.session()
        self._evaluator = op.agent.team.evaluator

    async def iterate(self, iteration: int) -> bool:
        op, standing = self._op, self.standing
        plan = await self._planned(iteration)
        if not plan.assignments and not standing.has_worked:
            return self._answered_directly(iteration)
        results: list[Worked] = []
        if plan.assignments:
            results = await dispatched(op, self._request, self._workers, plan.assignments)
            standing.tried |= {result.worker for result in results}
            must_have_worked(op, results)
            standing.has_worked = True
            standing.parts = tuple(result.part for result in results)
            standing.synthesis = await self._synthesised(plan, results)
        verdict = await self._verdict(is_claimed=not plan.assignments)
        is_met = await judged(op, self._own, standing, verdict, iteration, members=self._workers)
        if plan.assignments and not is_met:
            looked_for_repetition(op, standing)
            propose(op, self._own, standing, self._workers, results, iteration)
        return is_met

    def _answered_directly(self, iteration: int) -> bool:
        """The lead's first reply is the answer, as its team allows; there is nothing to judge."""
        by = self._op.agent.name
        evaluated = Evaluated(iteration=iteration, score=1.0, rationale="answered directly", by=by, is_complete=True)
        self.standing.scores.append(self._op.scope.record(evaluated).score)
        return True

    async def _planned(self, iteration: int) -> Plan:
        """The assignments of an iteration; none where the lead says that nothing is missing."""
        op, standing = self._op, self.standing
        if not standing.has_worked:
            reply = await self._lead.ask(planning(op, self._own, self._request, self._workers))
            plan = await planned(op, self._own, self._request, self._workers, self._lead, reply)
            standing.synthesis = "" if plan.assignments else reply.text
        else:
            reply = await self._lead.ask(self._next_prompt(iteration))
            plan = await planned(op, self._own, self._request, self._workers, self._lead, reply, iteration=iteration)
        standing.skipped = [*skipped(plan), *flagged(plan)]
        return plan

    def _next_prompt(self, iteration: int) -> str:
        standing = self.standing
        advice, standing.advice = standing.advice, []
        return filled(
            self._own.prompts,
            "next_plan",
            iteration=iteration,
            most=self._own.max_iterations,
            evaluation=standing.evaluation,
            skipped=f"About your last plan: {'; '.join(standing.skipped)}\n" if standing.skipped else "",
            advice=f"Take into account: {'; '.join(advice)}\n" if advice else "",
            names=", ".join(self._workers),
            request=self._request.original,
        )

    async def _synthesised(self, plan: Plan, results: list[Worked]) -> str:
        words = synthesis(self._own, self._request, plan, results)
        if self._evaluator is None:
            words += filled(self._own.prompts, "evaluation")
        return (await self._lead.ask(words)).text

    async def _verdict(self, *, is_claimed: bool) -> Verdict:
        """What the judge says: the evaluator where there is one, else the lead in its own reply."""
        op, text = self._op, self.standing.synthesis
        if self._evaluator is None:
            claims = is_claimed or is_complete(text)
            score = 1.0 if claims else self_score(text)
            why = missing(answer_of(text) if claims else text)
            return Verdict(claims, score, why, op.agent.name, op.agent.model)
        judge = op.agents[self._evaluator]
        words = filled(self._own.prompts, "score", request=self._request.original, work=neutralise(text))
        part = await op.child(judge, "member").outcome(
            Request(text=words, origin=self._request.original), timeout=self._own.worker_timeout
        )
        if part.failure is not None:
            why = f"{judge.name} could not judge it: {part.failure.told_to(judge.name)}"
            return Verdict(False, parse_score("").score, why, judge.name, judge.model)
        found = parse_score(part.text)
        claims = found.score >= GOAL or is_complete(part.text)
        return Verdict(claims, found.score, found.rationale, judge.name, judge.model)


class Alone:
    """One agent that works on the same request again until it finds nothing missing."""

    def __init__(self, op: Operation, request: Request) -> None:
        self.standing = Standing()
        self._op = op
        self._request = request
        self._own = options(op)

    @classmethod
    async def of(cls, op: Operation, request: Request) -> Alone:
        """The work of an operation's agent, with all that it may use."""
        op.session(*op.coordination, *subagents(op), *delegating(op), *await op.offered())
        return cls(op, request)

    async def iterate(self, iteration: int) -> bool:
        op, standing = self._op, self.standing
        reply = await op.session().ask(self._prompt(iteration))
        standing.synthesis, standing.has_worked = reply.text, True
        verdict = Verdict(
            claims=is_complete(reply.text, group=False),
            score=self_score(reply.text, group=False),
            rationale=missing(reply.text),
            by=op.agent.name,
            model=op.agent.model,
        )
        is_met = await judged(op, self._own, standing, verdict, iteration)
        if not is_met:
            looked_for_repetition(op, standing)
        return is_met

    def _prompt(self, iteration: int) -> str:
        if not self.standing.has_worked:
            return filled(self._own.prompts, "alone", request=self._request.prompt())
        return filled(
            self._own.prompts,
            "alone_again",
            iteration=iteration,
            most=self._own.max_iterations,
            evaluation=self.standing.evaluation,
            request=self._request.original,
        )


def _words(end: ReflectEnd) -> str:
    return {
        "max_iterations": "no more iterations are allowed",
        "stalled": "the work repeats itself",
        "error_budget": "too many errors in a row",
        "budget_exhausted": "the budget is used up",
    }.get(end, end)
