"""What might be changed about a team between two iterations: proposed, and done only where that is wanted.

A person applies a proposal by changing the member; with `adjust: auto` it is applied at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..core.operation import Operation
from ..values.agent import Agent
from ..values.event import AdjustmentProposed, MemberChanged
from .loop_state import LoopState
from .team_members import TaskResult, TeamOptions

SHORT = 100
"""Fewer characters than this are hardly an answer."""

DROP = 0.15
"""An evaluation that is worse by more than this asks for a change."""


def propose_adjustments(
    op: Operation,
    own: TeamOptions,
    state: LoopState,
    workers: Mapping[str, Agent],
    results: Sequence[TaskResult],
    iteration: int,
) -> None:
    """Record what might be changed; with `adjust: auto` it holds from the next iteration on."""
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
    """What to say, and the member that another model is proposed for, if any."""
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
        yield "the work repeats itself; ask for something else, or of somebody else", ""


def _choose_other_model(op: Operation, workers: Mapping[str, Agent], member: str, results: Sequence[TaskResult]) -> str:
    """A model that this member does not think with: that of one who succeeded, else the lead's; empty for none."""
    change = op.scope.timeline.member_changes.get(member)
    own = workers[member].model if change is None or not change.model else change.model
    good = [workers[result.worker].model for result in results if result.state == "succeeded"]
    return next((model for model in (*good, op.agent.model) if model and model not in (own, "inherit")), "")
