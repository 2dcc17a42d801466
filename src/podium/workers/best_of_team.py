"""Make a team that does one task several times, each time in a separate worktree, and keeps the best result."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import structs

from ..core.placement import WorkerOptions
from ..files.settings import Settings
from ..values.agent import Agent, Member, Team
from ..values.errors import Mistake
from .worker_options import apply_options_to_agent

Choose = Literal["checks", "judge", "person"]
LEAD = "best-of"
MOST_TIMES = 10
PROMPT = "You compare several attempts at the same task, and judge each by its result and its quality."


def make_best_of_team(
    agent: Agent, times: int, choose: Choose | None, settings: Settings, options: WorkerOptions
) -> tuple[Agent, Agent]:
    """Return the lead of a team whose members all do the same task, and the agent that every member runs.

    The team first runs the checks in the settings, if any, on each result. `choose` says how to choose the best of the
    results that pass; by default, a judge chooses. Raise Mistake if `choose` is `checks` and the settings have no
    checks.
    """
    checks = _format_checks(settings.checks)
    if choose == "checks" and not checks:
        raise Mistake(
            "--choose checks requires at least one check, but the settings define none; add one, for example "
            "checks: {tests: pytest -q}, or use --choose judge"
        )
    member = apply_options_to_agent(structs.replace(options, budget=None, timeout=None), agent, settings)
    team_options: dict[str, Any] = {"choose": choose or "judge", "worktrees": "each"}
    if checks:
        team_options["checks"] = checks
    if options.timeout is not None:
        team_options |= {"worker_timeout": options.timeout, "collection_timeout": options.timeout}
    members = tuple(Member(agent=agent.name, name=f"{agent.name}-{number}") for number in range(1, times + 1))
    lead = Agent(
        name=LEAD,
        description=f"Has {agent.name} do a task {times} times, and keeps the best result.",
        prompt=PROMPT,
        model=member.model,
        engine=member.engine,
        team=Team(mode="broadcast", members=members, options=team_options),
    )
    return lead, structs.replace(member, isolation="process")


def _format_checks(checks: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the checks from the settings as command lines, as a team's `checks` option expects them."""
    return [argv[2] if list(argv[:2]) == ["sh", "-c"] else shlex.join(argv) for argv in checks.values()]
