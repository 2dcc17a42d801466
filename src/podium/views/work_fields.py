"""Return the work of a collaborating team as JSON fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..values.operation_path import parse_agent_name
from .run_plans import StepUse, TeamWork


def work_fields(work: TeamWork, used: Mapping[str, StepUse]) -> dict[str, Any]:
    """Return a team's work as JSON fields. `used` is what each step has used, keyed by step."""
    progress = work.progress
    return {
        "agent": parse_agent_name(work.operation),
        "state": progress.state,
        "version": progress.version,
        "goal": "" if progress.formed is None else progress.formed.goal,
        "draft": None if work.draft is None else work.draft.plan,
        "steps": [
            {
                "id": id,
                "state": one.state,
                "owner": one.owner,
                "attempt": one.attempt,
                "description": one.step.description,
                "depends_on": one.step.depends_on,
                "acceptance": one.step.acceptance,
                "policy": one.step.policy,
                "used": used[id],
                "findings": one.findings,
                "reason": one.reason,
                "branch": one.branch or None,
                "commit": one.commit or None,
            }
            for id, one in progress.steps.items()
        ],
        "snapshots": [{"name": taken.name, "seq": seq} for seq, taken in work.snapshots],
    }
