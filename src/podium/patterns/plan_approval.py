"""Find the rules that a person approved with a plan.

A plan can contain rules that allow more than the settings do. A machine that continues a run of another machine does
not believe that machine's word that a person approved them: it looks for the person's answer, and for the question
that the person saw.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..core.journal_rows import compute_digest
from ..values.event import PermissionAnswered, PermissionAsked, PlanCommitted, QuestionAnswered, QuestionAsked
from ..values.plan import PlanStep
from .plan_drafting import APPROVE, format_plan_question

Asked = PermissionAsked | QuestionAsked
Answered = PermissionAnswered | QuestionAnswered


def find_approved_rules(
    committed: PlanCommitted, step: str, asked: Mapping[str, Asked], answers: Mapping[str, Answered]
) -> tuple[str, ...]:
    """Return the allow rules of a plan's step that a person has approved, given a run's questions and answers."""
    if not committed.is_approved_by_person:
        return ()
    approved = {
        rule
        for id, answered in answers.items()
        for one in _list_approved_steps(asked.get(id), answered)
        if one.id == step
        for rule in one.policy.allow
    }
    return tuple(
        rule for one in committed.plan.steps if one.id == step for rule in one.policy.allow if rule in approved
    )


def _list_approved_steps(question: Asked | None, answered: Answered) -> tuple[PlanStep, ...]:
    """Return the steps of the plan that an answer approves, or nothing if the question did not show that plan."""
    if not isinstance(question, QuestionAsked) or not isinstance(answered, QuestionAnswered) or question.plan is None:
        return ()
    is_shown = question.shown.startswith(format_plan_question(question.plan, ()))
    if not is_shown or answered.digest != compute_digest(question.shown):
        return ()
    if question.kind != "plan" or answered.text.strip().casefold() != APPROVE:
        return ()
    return (answered.plan or question.plan).steps
