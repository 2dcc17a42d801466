"""Reflect: plan, work, judge, and again, until the goal is met or there is a reason to stop.

A judge's word that the work is complete counts only in the judge's own reply, and only with
evidence: somebody worked, everybody took part where the team wants that, and the checks pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from anyio import sleep

from ..agent import Agent
from ..errors import Failed, FailureKind
from ..event import AdjustmentProposed, Evaluated, IterationFailed, ReflectEnd, ReflectEnded
from ..message import delivered, recalled
from ..operation import Operation
from ..request import Answer, Part, Request
from ..session import Session
from .dispatch import Plan, parse_plan
from .orchestrate import must_have_worked, planned, planning, recorded, skipped
from .prompts import filled
from .stall import StallDetector
from .team import Options, Worked, dispatched, members, options, told
from .verdict import feedback, is_complete, neutralise, parse_score, self_score, trend

GOAL = 0.9
REFUSED = 0.3
"""The score of work that was called complete and is not."""

MOST_ERRORS = 3
RETRY_SECONDS = 2.0
SHORT = 100
DROP = 0.15


@dataclass
class Loop:
    """How a loop stands: what is said of it is on the timeline, and running again gives the same."""

    scores: list[float] = field(default_factory=list)
    synthesis: str = ""
    evaluation: str = ""
    tried: set[str] = field(default_factory=set)
    has_worked: bool = False
    skipped: list[str] = field(default_factory=list)
    errors: int = 0
    stall: StallDetector = field(default_factory=StallDetector)
    parts: tuple[Part, ...] = ()


async def reflect(op: Operation, request: Request) -> Answer:
    """The synthesis that met the goal. Raises Failed, with how the loop ended, where none did."""
    own, workers, lead = options(op), members(op), op.session()
    loop = Loop()
    end: ReflectEnd = "max_iterations"
    iteration = 0
    while iteration < own.max_iterations:
        iteration += 1
        try:
            is_met = await iterated(op, own, request, workers, lead, loop, iteration)
            loop.errors = 0
        except Failed as error:
            if error.failure.kind == "budget":
                end = "budget_exhausted"
                break
            loop.errors += 1
            if loop.errors == MOST_ERRORS:
                end = "error_budget"
                break
            await _wait_and_retry(op, iteration, error)
            iteration -= 1
            continue
        if is_met:
            op.scope.record(ReflectEnded(end="goal_met", iterations=iteration, score=loop.scores[-1]))
            return Answer(text=_without_verdict(loop.synthesis), parts=loop.parts)
        if loop.stall.is_stalled:
            end = "stalled"
            break
    op.scope.record(ReflectEnded(end=end, iterations=iteration, score=loop.scores[-1] if loop.scores else 0.0))
    kind: FailureKind = "budget" if end == "budget_exhausted" else "limit" if end == "max_iterations" else "failed"
    raise op.failed(kind, f"the goal was not met: {_words(end)} after {iteration} of {own.max_iterations} iterations")


async def iterated(
    op: Operation,
    own: Options,
    request: Request,
    workers: dict[str, Agent],
    lead: Session,
    loop: Loop,
    iteration: int,
) -> bool:
    """One iteration: plan, work, judge. Whether the goal is met."""
    plan = await _plan(op, own, request, workers, lead, loop, iteration)
    if plan.assignments:
        results = await dispatched(op, request, workers, plan.assignments)
        must_have_worked(op, results)
        loop.has_worked = True
        loop.tried |= {result.worker for result in results}
        loop.parts = tuple(result.part for result in results)
        await _synthesise(op, own, request, lead, loop, results)
        _propose(op, loop, results, iteration)
    return await _judge(op, own, request, workers, loop, iteration, is_claimed=not plan.assignments)


# Planning


async def _plan(
    op: Operation,
    own: Options,
    request: Request,
    workers: dict[str, Agent],
    lead: Session,
    loop: Loop,
    iteration: int,
) -> Plan:
    """The assignments of an iteration; none where the lead says that nothing is missing."""
    if not loop.has_worked:
        reply = await lead.ask(planning(op, own, request, workers))
        plan = await planned(op, own, request, workers, lead, reply)
    else:
        reply = await lead.ask(_next_prompt(op, own, request, workers, loop, iteration))
        plan = recorded(op, parse_plan(reply.text, list(workers)), iteration=iteration)
    loop.skipped = skipped(plan)
    return plan


def _next_prompt(
    op: Operation, own: Options, request: Request, workers: dict[str, Agent], loop: Loop, iteration: int
) -> str:
    place = op.scope.at(f"iteration#{iteration}")
    said = recalled(place) or delivered(place, op.agent.name)
    return filled(
        own.prompts,
        "next_plan",
        iteration=iteration,
        most=own.max_iterations,
        evaluation=loop.evaluation,
        skipped=f"Not dispatched last time: {'; '.join(loop.skipped)}\n" if loop.skipped else "",
        messages=f"{said}\n" if said else "",
        names=", ".join(workers),
        request=request.original,
    )


# Judging


async def _synthesise(
    op: Operation, own: Options, request: Request, lead: Session, loop: Loop, results: Sequence[Worked]
) -> None:
    words = filled(own.prompts, "synthesis", request=request.original, results=told(results))
    assert op.agent.team is not None
    if op.agent.team.evaluator is None:
        words += filled(own.prompts, "evaluation")
    reply = await lead.ask(words)
    loop.synthesis = reply.text


async def _judge(
    op: Operation,
    own: Options,
    request: Request,
    workers: dict[str, Agent],
    loop: Loop,
    iteration: int,
    *,
    is_claimed: bool,
) -> bool:
    """Whether the goal is met, by the judge's own words, or its plan without work, and the evidence for them."""
    assert op.agent.team is not None
    evaluator = op.agent.team.evaluator
    if evaluator is None:
        claims = is_claimed or is_complete(loop.synthesis)
        score, rationale, by = self_score(loop.synthesis), feedback(loop.synthesis), op.agent.name
        score = 1.0 if claims else score
    else:
        words = filled(own.prompts, "score", request=request.original, work=neutralise(loop.synthesis))
        part = await op.child(evaluator, "member").outcome(
            Request(text=words, origin=request.original), timeout=own.worker_timeout
        )
        found = parse_score(part.text if part.failure is None else "")
        claims = part.failure is None and (found.score >= GOAL or is_complete(part.text))
        score, rationale, by = found.score, found.rationale, evaluator
        if part.failure is not None:
            rationale = f"{evaluator} could not judge it: {part.failure.told_to(evaluator)}"
    held_back = _held_back(own, workers, loop) if claims else ""
    if held_back:
        score = REFUSED
    loop.scores.append(score)
    loop.evaluation = held_back or rationale
    op.scope.record(
        Evaluated(
            iteration=iteration,
            score=score,
            rationale=rationale,
            by=by,
            trend=trend(loop.scores),
            is_complete=claims and not held_back,
            held_back=held_back,
        )
    )
    loop.stall.check(loop.synthesis)
    return claims and not held_back


def _held_back(own: Options, workers: dict[str, Agent], loop: Loop) -> str:
    """Why a claim to be complete does not hold; empty where it does."""
    if not loop.has_worked:
        return "nobody has worked on it yet"
    missing = [name for name in workers if name not in loop.tried]
    if own.participation == "all" and missing:
        return f"{', '.join(missing)} did not take part yet"
    return ""


def _propose(op: Operation, loop: Loop, results: Sequence[Worked], iteration: int) -> None:
    """What might be changed about the team, for the person to decide."""
    proposals = [
        f"{result.worker} {result.state}; another model may do better"
        for result in results
        if result.state != "succeeded"
    ]
    if iteration > 1:
        proposals += [
            f"{result.worker} answered with {len(result.part.text)} characters; its task may be too vague"
            for result in results
            if result.state == "succeeded" and len(result.part.text) < SHORT
        ]
    if len(loop.scores) > 1 and loop.scores[-2] - loop.scores[-1] > DROP:
        proposals.append("the last evaluation was worse than the one before; another model may do better")
    for text in proposals:
        op.scope.record(AdjustmentProposed(iteration=iteration, text=text))


# Trouble


async def _wait_and_retry(op: Operation, iteration: int, error: Failed) -> None:
    """Record what went wrong and wait a little; a resumed run has waited already."""
    message = str(error.failure)
    place = op.scope.next("retry")
    known = place.recall(IterationFailed)
    if known is None:
        place.settle(IterationFailed(iteration=iteration, message=message))
        await sleep(RETRY_SECONDS)


def _without_verdict(synthesis: str) -> str:
    """The answer without the line that says that it is one."""
    return "\n".join(line for line in synthesis.splitlines() if not is_complete(line)).strip()


def _words(end: ReflectEnd) -> str:
    return {
        "max_iterations": "no more iterations are allowed",
        "stalled": "the work repeats itself",
        "error_budget": "too many errors in a row",
        "budget_exhausted": "the budget is used up",
    }.get(end, end)
