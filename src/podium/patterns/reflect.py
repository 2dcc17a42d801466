"""Run a team in reflect mode: plan, work and judge in a loop until the goal is met or there is a reason to stop.

If the team has no members, the agent reflects alone. `loop_state` checks a judge's verdict against the
evidence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from anyio import sleep

from ..core.operation import Operation
from ..values.agent import Agent
from ..values.errors import AgentFailed, FailureKind
from ..values.event import AdjustmentProposed, Evaluated, IterationFailed, MemberChanged, ReflectEnd, ReflectEnded
from ..values.request import Answer, Part, Request
from ..values.team_modes import ReflectOptions
from .answer_check import ask_without_plan
from .delegation_tools import make_delegation_tools
from .dispatch import Plan
from .json_output import SCORE_FORMAT
from .loop_state import (
    JudgeVerdict,
    LoopState,
    check_repetition,
    evaluate_verdict,
    find_best_iteration,
    is_evaluated,
    keep_iteration_files,
    record_loop_start,
    restore_best_files,
)
from .member_tasks import (
    TaskResult,
    as_writer,
    format_results,
    get_team_options,
    make_subagent_tools,
    resolve_members,
    run_assignments,
)
from .orchestrate import (
    NothingAssigned,
    ask_for_plan,
    describe_shared_tasks,
    describe_skipped,
    render_plan_prompt,
    render_synthesis_prompt,
    require_success,
)
from .team_prompts import render_prompt
from .verdict import (
    EMPTY_REPLY,
    UNSCORED,
    Score,
    claims_completion,
    describe_missing,
    find_usable_score,
    needs_iteration,
    neutralise,
    parse_score,
    self_score,
    strip_verdict,
)

GOAL = 0.9
MOST_ERRORS = 3
RETRY_SECONDS = 2.0


async def run_reflect(op: Operation, request: Request) -> Answer:
    """Return the synthesis that met the goal. Raise AgentFailed, with the reason, if the goal was not met."""
    assert op.agent.team is not None
    work: Reflection = (
        TeamReflection(op, request) if op.agent.team.members else await SoloReflection.from_operation(op, request)
    )
    own, state = get_team_options(op, ReflectOptions), work.state
    await record_loop_start(op, own, state)
    end, finished, why = await _run_loop(op, own, work)
    best = None if end == "goal_met" else find_best_iteration(state.finished)
    is_earlier = best is not None and best.number != state.finished[-1].number
    if best is not None and own.keep == "best":
        await restore_best_files(op, best.number, state.finished[-1].number)
    op.scope.record(
        ReflectEnded(
            end=end,
            iterations=finished,
            score=best.score if best and is_earlier else state.scores[-1] if state.scores else 0.0,
            most=own.max_iterations,
            best=best.number if best and is_earlier else 0,
        )
    )
    text = strip_verdict(best.synthesis if best and is_earlier else state.synthesis)
    if end == "goal_met":
        return Answer(text=text, parts=state.parts)
    if best and is_earlier:
        why = f"{why}; " * bool(why) + f"the best iteration was {best.number}, with a score of {best.score:.2g}"
    kind: FailureKind = "budget" if end == "budget_exhausted" else "limit" if end == "max_iterations" else "failed"
    reason = state.refused_checks or _describe_end(end)
    message = f"the goal was not met after {finished} of {own.max_iterations} iterations: {reason}"
    raise op.make_error(kind, f"{message} ({why})" if why else message, so_far=text)


class Reflection(Protocol):
    """Runs the iterations of a loop, and stores the loop's state."""

    state: LoopState

    async def iterate(self, iteration: int) -> bool:
        """Run one iteration and judge its result. Return whether the goal is met."""
        ...


class LoopEnd(NamedTuple):
    """How a loop ended, the number of finished iterations, and the error that ended the loop, if any."""

    end: ReflectEnd
    finished: int
    why: str = ""


async def _run_loop(op: Operation, own: ReflectOptions, work: Reflection) -> LoopEnd:
    """Iterate until there is a reason to stop."""
    iteration, errors = 1, 0
    while True:
        try:
            if await work.iterate(iteration):
                return LoopEnd("goal_met", iteration)
        except AgentFailed as error:
            errors += 1
            why = str(error.failure)
            if error.failure.kind == "budget":
                return LoopEnd("budget_exhausted", iteration - 1, why)
            is_over = errors == MOST_ERRORS or isinstance(error, NothingAssigned)
            await _record_iteration_failure(op, IterationFailed(iteration=iteration, message=why), is_over=is_over)
            if is_over:
                return LoopEnd("error_budget", iteration - 1, why)
            continue
        errors = 0
        work.state.finish_iteration(iteration)
        if own.keep == "best":
            await keep_iteration_files(op, iteration)
        if work.state.refused_checks:
            return LoopEnd("error_budget", iteration)
        if work.state.stall.is_stalled:
            return LoopEnd("stalled", iteration, work.state.why)
        if iteration == own.max_iterations:
            return LoopEnd("max_iterations", iteration, work.state.why)
        iteration += 1


async def _record_iteration_failure(op: Operation, failed: IterationFailed, *, is_over: bool) -> None:
    """Record the failure, and wait before the next attempt. A resumed run does not wait again."""
    place = op.scope.next_child("retry")
    if place.find_outcome(IterationFailed) is None:
        place.record_outcome(failed)
        if not is_over:
            await sleep(RETRY_SECONDS)


class TeamReflection:
    """Reflection by a lead and its workers: plan, work, synthesis, verdict."""

    def __init__(self, op: Operation, request: Request) -> None:
        assert op.agent.team is not None
        self.state = LoopState()
        self._op = op
        self._request = request
        self._own = get_team_options(op, ReflectOptions)
        self._workers = resolve_members(op)
        self._last_operations: dict[str, Operation] = {}
        self._lead = op.session()
        self._evaluator = self._own.evaluator

    async def iterate(self, iteration: int) -> bool:
        op, state = self._op, self.state
        plan = await self._make_plan(iteration)
        if not plan.assignments and not state.has_worked:
            return self._accept_direct_answer(iteration)
        results: list[TaskResult] = []
        if plan.assignments:
            results = await run_assignments(
                op,
                self._request,
                self._workers,
                plan.assignments,
                before=None if self._own.fresh else self._last_operations,
            )
            state.tried |= {result.worker for result in results}
            state.failed = [] if any(result.state == "succeeded" for result in results) else results
            require_success(op, results)
            state.has_worked = True
            state.parts = tuple(result.part for result in results)
            state.synthesis = await self._ask_for_synthesis(plan, results)
        verdict = await self._get_verdict(iteration, is_claimed=not plan.assignments)
        is_met = await evaluate_verdict(op, self._own, state, verdict, iteration, members=self._workers)
        if plan.assignments and not is_met:
            check_repetition(op, state)
            _propose_adjustments(op, self._own, state, self._workers, results, iteration)
        return is_met

    def _accept_direct_answer(self, iteration: int) -> bool:
        """Accept the lead's first reply as the answer without judging it, because the team allows direct answers."""
        by = self._op.agent.name
        evaluated = Evaluated(iteration=iteration, score=1.0, rationale="answered directly", by=by, is_complete=True)
        self.state.scores.append(self._op.scope.record(evaluated).score)
        return True

    async def _make_plan(self, iteration: int) -> Plan:
        """Ask the lead for an iteration's plan. The plan is empty if the lead says that nothing is missing."""
        op, state = self._op, self.state
        is_first = not state.has_worked and not state.failed
        if is_first:
            words = render_plan_prompt(op, self._own, self._request, self._workers)
        else:
            words = self._render_failed_prompt() if state.failed else self._render_next_prompt(iteration)
        planned = await ask_for_plan(
            op, self._own, self._request, self._workers, self._lead, words, iteration=iteration, may_answer=is_first
        )
        plan = planned.plan
        if is_first:
            state.synthesis = "" if plan.assignments else planned.answer
        state.skipped = [*describe_skipped(plan), *describe_shared_tasks(plan)]
        return plan

    def _render_failed_prompt(self) -> str:
        """Render the prompt to send after every worker of a plan has failed. It says what failed and why."""
        return render_prompt(
            self._own.prompts,
            "plan_failed",
            results=format_results(self.state.failed),
            names=", ".join(self._workers),
            request=self._request.original,
        )

    def _render_next_prompt(self, iteration: int) -> str:
        state = self.state
        advice, state.advice = state.advice, []
        return render_prompt(
            self._own.prompts,
            "next_plan",
            iteration=iteration,
            most=self._own.max_iterations,
            evaluation=state.evaluation,
            skipped=f"About your last plan: {'; '.join(state.skipped)}\n" if state.skipped else "",
            advice=f"Take into account: {'; '.join(advice)}\n" if advice else "",
            names=", ".join(self._workers),
            request=self._request.original,
        )

    async def _ask_for_synthesis(self, plan: Plan, results: list[TaskResult]) -> str:
        words = render_synthesis_prompt(self._own, self._request, plan, results)
        if self._evaluator is None:
            words += render_prompt(self._own.prompts, "evaluation")
        return await ask_without_plan(self._op, self._lead, words, self._workers)

    async def _get_verdict(self, iteration: int, *, is_claimed: bool) -> JudgeVerdict:
        """Return the evaluator's verdict. If there is no evaluator, return the verdict in the lead's own reply."""
        op, text = self._op, self.state.synthesis
        if self._evaluator is None:
            # A reply that has only the marker is a claim, too: the evidence decides, and the lead is told about it.
            claims = is_claimed or claims_completion(text)
            score = 1.0 if claims else self_score(text)
            why = describe_missing(strip_verdict(text) if claims else text)
            return JudgeVerdict(claims, score, why, op.agent.name, op.agent.model)
        judge = op.agents[self._evaluator]
        words = render_prompt(self._own.prompts, "score", request=self._request.original, work=neutralise(text))
        part = await self._ask_evaluator(judge, words, iteration)
        if part.failure is not None:
            why = f"{judge.name} could not judge the work: {part.failure.describe_to(judge.name)}"
            return JudgeVerdict(False, parse_score("").score, why, judge.name, judge.model)
        found = parse_score(part.text)
        if found.is_clamped:
            found = Score(UNSCORED, found.rationale)
        claims = claims_completion(part.text) or (found.score >= GOAL and not needs_iteration(part.text))
        return JudgeVerdict(claims, found.score, found.rationale.strip() or EMPTY_REPLY, judge.name, judge.model)

    async def _ask_evaluator(self, judge: Agent, words: str, iteration: int) -> Part:
        """Return the evaluator's reply. If the reply contains no verdict, ask once more, without tools.

        The first reply is then left out of the conversation. If the second reply has no score, return the first.
        """
        op, origin = self._op, self._request.original
        first = op.child(judge, "member")
        first.reply_format = SCORE_FORMAT
        part = await first.run_as_part(Request(text=words, origin=origin), timeout=self._own.worker_timeout)
        says_verdict = claims_completion(part.text) or needs_iteration(part.text)
        has_verdict = says_verdict or find_usable_score(part.text) is not None
        if part.failure is not None or has_verdict or is_evaluated(op, iteration):
            return part
        again = op.child(as_writer(judge), "member", at=op.scope.child(f"score_again#{iteration}"), after=first)
        again.reply_format, again.is_correction = SCORE_FORMAT, True
        words = render_prompt(self._own.prompts, "score_again")
        second = await again.run_as_part(Request(text=words, origin=origin), timeout=self._own.worker_timeout)
        return part if second.failure is not None or find_usable_score(second.text) is None else second


class SoloReflection:
    """Reflection by one agent, which works on the same request until nothing is missing."""

    def __init__(self, op: Operation, request: Request) -> None:
        self.state = LoopState()
        self._op = op
        self._request = request
        self._own = get_team_options(op, ReflectOptions)

    @classmethod
    async def from_operation(cls, op: Operation, request: Request) -> SoloReflection:
        """Create the reflection for an operation's agent, and a session with all the agent's tools."""
        op.session(
            *op.coordination_tools, *make_subagent_tools(op), *make_delegation_tools(op), *await op.offer_tools()
        )
        return cls(op, request)

    async def iterate(self, iteration: int) -> bool:
        op, state = self._op, self.state
        reply = await op.session().ask(self._render_prompt(iteration))
        state.synthesis, state.has_worked = reply.text, True
        verdict = JudgeVerdict(
            claims=claims_completion(reply.text, group=False),
            score=self_score(reply.text, group=False),
            rationale=describe_missing(reply.text),
            by=op.agent.name,
            model=op.agent.model,
        )
        is_met = await evaluate_verdict(op, self._own, state, verdict, iteration)
        if not is_met:
            check_repetition(op, state)
        return is_met

    def _render_prompt(self, iteration: int) -> str:
        if not self.state.has_worked:
            return render_prompt(self._own.prompts, "alone", request=self._request.prompt())
        return render_prompt(
            self._own.prompts,
            "alone_again",
            iteration=iteration,
            most=self._own.max_iterations,
            evaluation=self.state.evaluation,
            request=self._request.original,
        )


def _describe_end(end: ReflectEnd) -> str:
    return {
        "max_iterations": "the iteration limit is reached",
        "stalled": "the results are repeating",
        "error_budget": "too many errors in a row",
        "budget_exhausted": "the budget is used up",
    }.get(end, end)


SHORT = 100
"""An answer with fewer characters than this is suspiciously short."""

DROP = 0.15
"""The largest drop in the score that is tolerated. After a larger drop, an adjustment is proposed."""


def _propose_adjustments(
    op: Operation,
    own: ReflectOptions,
    state: LoopState,
    workers: Mapping[str, Agent],
    results: Sequence[TaskResult],
    iteration: int,
) -> None:
    """Record proposed adjustments. With `adjust: auto`, also apply them.

    Applying an adjustment adds its text to the prompt for the next plan. If it proposes another model for a member,
    the member's model is changed.
    """
    is_applied = own.adjust == "auto"
    for text, member in _find_adjustments(state, results, iteration):
        model = _choose_other_model(op, workers, member, results) if member else ""
        proposed = op.scope.record(
            AdjustmentProposed(iteration=iteration, text=text, member=member, model=model, is_applied=is_applied)
        )
        if proposed.is_applied:
            state.advice.append(text)
            if proposed.model:
                op.scope.record(MemberChanged(member=member, model=proposed.model, by="podium"))


def _find_adjustments(state: LoopState, results: Sequence[TaskResult], iteration: int) -> Iterator[tuple[str, str]]:
    """Yield the text of each adjustment, with the name of the member that should use another model.

    If no particular member should use another model, the name is an empty string.
    """
    for result in results:
        if result.state != "succeeded":
            yield f"{result.worker} {result.state.replace('_', ' ')}; another model may do better", result.worker
        elif iteration > 1 and len(result.part.text) < SHORT:
            yield f"{result.worker} answered with {len(result.part.text)} characters; its task may be too vague", ""
    if state.score_drop > DROP:
        yield f"the score fell by {state.score_drop:.2f}; go back to what worked before", ""
    if state.trend == "degrading":
        yield "the work is getting worse; other models may do better", ""
    if state.is_repeating:
        yield "the results are repeating; assign a different task or a different worker", ""


def _choose_other_model(op: Operation, workers: Mapping[str, Agent], member: str, results: Sequence[TaskResult]) -> str:
    """Return a model that a successful member or the lead uses but this member does not, or an empty string."""
    change = op.scope.timeline.index.member_changes.get(member)
    own = workers[member].model if change is None or not change.model else change.model
    good = [workers[result.worker].model for result in results if result.state == "succeeded"]
    return next((model for model in (*good, op.agent.model) if model and model not in (own, "inherit")), "")
