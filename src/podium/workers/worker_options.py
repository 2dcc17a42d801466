"""Apply a worker's options to its agent and its settings. An option makes a team of several attempts."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import structs

from ..core.placement import WorkerOptions
from ..files.model_role import ROLES, Role
from ..files.settings import Settings
from ..values.agent import Agent, Budget, Member, Team, override_limits
from ..values.errors import Mistake
from ..values.tool_table import AGENT_RULE, DELEGATING_TOOLS, RULE_NAMES, TOOLS

Choose = Literal["checks", "judge", "person"]
LEAD = "best-of"
MOST_TIMES = 10
PROMPT = "You compare several attempts at the same task, and judge each by its result and its quality."


def apply_options_to_agent(options: WorkerOptions, agent: Agent, settings: Settings) -> Agent:
    """Return the agent with the options' role, model, engine, tools and limits. Raise Mistake for an unknown role."""
    changes: dict[str, Any] = {"isolation": "shared"}
    role = None if options.role is None else _find_role(options.role, settings)
    if options.model is not None:
        changes["model"] = options.model
    elif options.role in settings.models:
        changes["model"] = options.role
    if role is not None and changes.get("model") != options.role and role.prompt:
        changes["prompt"] = f"{agent.prompt}\n\n{role.prompt}"
    if options.engine is not None:
        changes["engine"] = options.engine
    if options.max_turns is not None:
        changes["max_turns"] = options.max_turns
    if options.is_reader:
        changes["tools"] = None
    budget = agent.budget
    for limits in (None if role is None else role.budget, options.budget, Budget(seconds=options.timeout)):
        budget = budget if limits in (None, Budget()) else override_limits(budget, limits)
    return structs.replace(agent, **(changes | {"budget": budget}))


def apply_options_to_settings(options: WorkerOptions, settings: Settings) -> Settings:
    """Add the allow rules of the options and the role to the settings. A read-only worker also gets plan mode.

    Raise Mistake for an invalid rule or an unknown role.
    """
    if options.is_reader:
        settings = structs.replace(settings, permission_mode="plan")
    role = None if options.role is None else _find_role(options.role, settings)
    rules = (*options.approved, *(() if role is None else role.rules))
    if not rules:
        return settings
    from ..policy.rule import parse_rule  # imported here to keep start-up fast: most workers have no rules

    for rule in rules:
        parse_rule(rule)
    mine = settings.permissions
    return structs.replace(settings, permissions=structs.replace(mine, allow=(*mine.allow, *rules)))


def _find_role(name: str, settings: Settings) -> Role:
    """Return a role from the settings, or a built-in one. Raise Mistake if there is no such role."""
    role = settings.models.get(name) or ROLES.get(name)
    if role is None:
        raise Mistake(f"role {name!r} not found; available: {', '.join(dict.fromkeys((*settings.models, *ROLES)))}")
    return role


def require_known_tools(rules: Sequence[str]) -> None:
    """Raise Mistake if a rule refers to an unknown tool."""
    known = [*(row.name_in_rules for row in TOOLS if row.effect != "other"), *DELEGATING_TOOLS, AGENT_RULE]
    names = dict.fromkeys(rule.partition("(")[0] for rule in rules)
    unknown = [
        name for name in names if name.lower() not in RULE_NAMES and name not in known and not name.startswith("mcp__")
    ]
    if unknown:
        there_are = ", ".join(known)
        raise Mistake(
            f"unknown tool in --auto-approve: {', '.join(unknown)}; available: {there_are}, and "
            "mcp__SERVER__TOOL for tools from MCP servers"
        )


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
