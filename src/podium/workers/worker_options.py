"""The terms that a worker is hired on: what it thinks with, what it may use, and what it may do without asking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from msgspec import structs

from ..config.model_role import ROLES, Role
from ..core.budget import override_limits
from ..setup.settings import Settings
from ..values.agent import Agent, Budget
from ..values.errors import Mistake


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """What is agreed on before a worker begins; what is left out is as the agent's own file says."""

    role: str | None = None
    model: str | None = None
    engine: str | None = None
    max_turns: int | None = None
    budget: Budget | None = None
    timeout: float | None = None
    is_reader: bool = False
    approved: tuple[str, ...] = ()
    """Rules for what it may do without asking."""


def apply_worker_options(agent: Agent, options: WorkerOptions, settings: Settings) -> Agent:
    """The agent as it is hired. Raises Mistake for a role that there is not."""
    changes: dict[str, Any] = {"isolation": "shared"}
    role = None if options.role is None else find_role(options.role, settings)
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


def allow_approved_rules(settings: Settings, options: WorkerOptions) -> Settings:
    """The settings with what was agreed on beforehand allowed. Raises Mistake for what is no rule, or no role."""
    role = None if options.role is None else find_role(options.role, settings)
    rules = (*options.approved, *(() if role is None else role.rules))
    if not rules:
        return settings
    from ..policy.rule import parse_rule  # here, because most workers bring no rules

    for rule in rules:
        parse_rule(rule)
    mine = settings.permissions
    return structs.replace(settings, permissions=structs.replace(mine, allow=(*mine.allow, *rules)))


def find_role(name: str, settings: Settings) -> Role:
    """A role of the settings, or one that comes along. Raises Mistake where there is none of that name."""
    role = settings.models.get(name) or ROLES.get(name)
    if role is None:
        raise Mistake(f"there is no role {name!r}; there are {', '.join(dict.fromkeys((*settings.models, *ROLES)))}")
    return role
