"""Format a plan as text, for reviews and for display."""

from __future__ import annotations

from collections.abc import Iterator

from ..values.plan import PlanStep, StepPolicy, WorkPlan


def format_plan(plan: WorkPlan) -> str:
    """Return the whole plan as text. Text from models is indented, so that it cannot imitate another step."""
    return "\n".join(line for step in plan.steps for line in _iter_step_lines(step))


def _iter_step_lines(step: PlanStep) -> Iterator[str]:
    """Yield the lines about one step."""
    after = f", after {', '.join(step.depends_on)}" if step.depends_on else ""
    yield f"{step.id}. {step.owner}{after}"
    yield from _indent(step.description)
    for criterion in step.acceptance:
        yield from _indent(criterion.text, "- ")
        if criterion.command:
            yield from _indent(criterion.command, "  $ ")
    yield from (f"    {line}" for line in _iter_policy_lines(step.policy))


def _iter_policy_lines(policy: StepPolicy) -> Iterator[str]:
    """Yield a line for each restriction, permission or limit that is set for a step."""
    if policy.tools is not None:
        yield f"tools: {', '.join(policy.tools) or 'none'}"
    if policy.approval == "ask":
        yield "asks for permission for every action"
    if policy.allow:
        yield f"allows without asking: {', '.join(policy.allow)}"
    limits = {"seconds": policy.seconds, "tokens": policy.tokens, "changed files": policy.files}
    if given := [f"{limit:g} {name}" for name, limit in limits.items() if limit is not None]:
        yield f"at most {', '.join(given)}"


def _indent(text: str, start: str = "") -> Iterator[str]:
    for number, line in enumerate(text.splitlines() or [""]):
        yield f"    {start if number == 0 else ' ' * len(start)}{line}"
