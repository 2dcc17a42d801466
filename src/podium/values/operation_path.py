"""Parse the path of an operation in its run, such as `lead/advice:legal#1`."""

from __future__ import annotations


def parse_agent_name(operation: str) -> str:
    """Return the name of an operation's agent: `legal` for `lead/advice:legal#1`."""
    segment = operation.rpartition("/")[2]
    return segment.partition(":")[2].rpartition("#")[0] or segment


TRIGGERS = frozenset(("handoff", "route", "advice", "member", "tool", "retry", "vote"))
"""The ways in which an operation can start another. The new operation's path segment begins with one of these words."""


def parse_team_operation(operation: str) -> str:
    """Return the path of the operation that started this one: `lead` for `lead/plan_step:s1/member:tester#1`.

    For the first operation of a run, return its own path.
    """
    above = operation.split("/")[:-1] or [operation]
    while len(above) > 1 and above[-1].partition(":")[0] not in TRIGGERS:
        above.pop()
    return "/".join(above)


PLAN_STEP = "plan_step:"
"""The prefix of a path segment that belongs to a plan step."""


def parse_plan_step(path: str) -> str:
    """Return the id of the innermost plan step that a path belongs to, or an empty string if there is none."""
    steps = [segment for segment in path.split("/") if segment.startswith(PLAN_STEP)]
    return steps[-1].removeprefix(PLAN_STEP).partition("~")[0] if steps else ""


def owns_plan_step(operation: str) -> bool:
    """Return whether an operation is the work of the owner of a plan step.

    Reviews, votes and the work of other agents in the plan step do not count.
    """
    return operation.rpartition("/")[0].rpartition("/")[2].startswith(PLAN_STEP)
