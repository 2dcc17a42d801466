"""What might be changed about a team between two iterations: proposed, and done only where that is wanted.

A person applies a proposal by changing the member; with `adjust: auto` it is applied at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..core.operation import Operation
from ..values.agent import Agent
from ..values.event import AdjustmentProposed, MemberChanged
from .loop_state import Standing
from .team_members import Options, Worked

SHORT = 100
"""Fewer characters than this are hardly an answer."""

DROP = 0.15
"""An evaluation that is worse by more than this asks for a change."""


def propose(
    op: Operation,
    own: Options,
    standing: Standing,
    workers: Mapping[str, Agent],
    results: Sequence[Worked],
    iteration: int,
) -> None:
    """Record what might be changed; with `adjust: auto` it holds from the next iteration on."""
    is_applied = own.adjust == "auto"
    for text, member in _proposals(standing, results, iteration):
        model = _another_model(op, workers, member, results) if member else ""
        proposed = op.scope.record(
            AdjustmentProposed(iteration=iteration, text=text, member=member, model=model, is_applied=is_applied)
        )
        if proposed.is_applied:
            standing.advice.append(text)
            if proposed.model:
                op.scope.record(MemberChanged(member=member, model=proposed.model, by="podium"))


def _proposals(standing: Standing, results: Sequence[Worked], iteration: int) -> Iterator[tuple[str, str]]:
    """What to say, and the member that another model is proposed for, if any."""
    for result in results:
        if result.state != "succeeded":
            yield f"{result.worker} {result.state.replace('_', ' ')}; another model may do better", result.worker
        elif iteration > 1 and len(result.part.text) < SHORT:
            yield f"{result.worker} answered with {len(result.part.text)} characters; its task may be too vague", ""
    if standing.drop > DROP:
        yield f"the score fell by {standing.drop:.2f}; go back to what worked before", ""
    if standing.trend == "degrading":
        yield "the work is getting worse; other models may do better", ""
    if standing.is_repeating:
        yield "the work repeats itself; ask for something else, or of somebody else", ""


def _another_model(op: Operation, workers: Mapping[str, Agent], member: str, results: Sequence[Worked]) -> str:
    """A model that this member does not think with: that of one who succeeded, else the lead's; empty for none."""
    change = op.scope.timeline.members.get(member)
    own = workers[member].model if change is None or not change.model else change.model
    good = [workers[result.worker].model for result in results if result.state == "succeeded"]
    return next((model for model in (*good, op.agent.model) if model and model not in (own, "inherit")), "")
