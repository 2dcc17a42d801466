"""Derive a worker's run that another host created from the record of its parent.

The host names the parent, the agent, the role and the task, and can choose what is narrower. Everything else must be as
in the parent's record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import structs

from ..files.discovery import load_roster
from ..files.model_role import ROLES, Role
from ..files.settings import RECORDED_FIELDS
from ..patterns.member_tasks import list_members
from ..patterns.plan_drafting import find_approved_rules
from ..store.reader import StoreReader
from ..system.identity import read_host_id
from ..values.agent import Agent, Budget, Permissions
from ..values.errors import Mistake
from ..values.event import (
    KINDS,
    BudgetChanged,
    PermissionAsked,
    PlanCommitted,
    QuestionAnswered,
    QuestionAsked,
    RunStarted,
)
from ..values.guidance import Guidance
from ..values.store_address import PostgresAddress
from ..values.tool_table import DEFAULT_STEP_TOOLS, STEP_TOOLS
from ..values.worker_task import DEFAULT_WORKER_AGENT, WorkerTask

FREE_FIELDS = frozenset(
    (
        "name",
        "description",
        "prompt",
        "display_name",
        "model",
        "fallback_models",
        "role",
        "capabilities",
        "input",
        "output",
        "max_turns",
        "max_tokens",
        "timeout",
        "budget",
        "isolation",
        "expects",
        "skills",
    )
)
"""The fields of an agent that a host can choose: they say what the agent is told, not what it may do."""

DROPPABLE_FIELDS = frozenset(("handoff", "router", "advisors", "team", "memory"))
"""The fields of an agent that a host can leave out, but not change."""

STRICTER_MODES: Mapping[str, frozenset[str]] = {
    "plan": frozenset(("plan",)),
    "dont-ask": frozenset(("plan", "dont-ask")),
    "default": frozenset(("plan", "dont-ask", "default")),
    "accept-edits": frozenset(("plan", "dont-ask", "default", "accept-edits")),
    "bypass": frozenset(("plan", "dont-ask", "default", "accept-edits", "bypass")),
}
"""The permission modes that a host can choose for a worker, for each mode of the parent."""


class WorkerDerivation:
    """Derives a worker's run from the record of its parent. Each check raises Mistake with what differs."""

    def __init__(self, store: PostgresAddress, parent_run: str, parent: RunStarted, child: RunStarted) -> None:
        self._store = store
        self._parent_run = parent_run
        self._parent = parent
        self._child = child

    def derive(self) -> RunStarted:
        """Return the start of the worker's run, with everything that a host cannot choose from the parent's record."""
        child, parent = self._child, self._parent
        if not child.agents or child.decision is not None or child.forked_from or child.shared or child.after:
            raise Mistake("it is not an ordinary worker's run")
        settings = self._derive_settings()
        return structs.replace(
            child,
            agents=self._derive_agents(is_plan=settings.get("permission_mode") == "plan"),
            settings=settings,
            errand=self._derive_task(),
            guidance=_derive_guidance(child.guidance, parent.guidance),
        )

    # Settings

    def _derive_settings(self) -> dict[str, Any]:
        """Return the parent's settings with the narrower rules, mode and budget of the worker."""
        given, above = self._child.settings, self._parent.settings
        narrower = ("permissions", "narrowing", "permission_mode", "budget", "base_url", "approval_seconds")
        for key, kind in RECORDED_FIELDS.items():
            if key in narrower or key not in above or key not in given:
                continue
            if msgspec.convert(given[key], kind) != msgspec.convert(above[key], kind):
                raise Mistake(f"the setting {key}")
        derived = {**above, "base_url": ""}
        if given.get("approval_seconds") is None:
            derived["approval_seconds"] = None
        derived["permissions"] = msgspec.to_builtins(self._derive_rules())
        derived["narrowing"] = msgspec.to_builtins(
            _require_stricter(_get_rules(given, "narrowing"), _get_rules(above, "narrowing"), "narrowing")
        )
        mode, own = given.get("permission_mode", "default"), above.get("permission_mode", "default")
        if mode not in STRICTER_MODES.get(own, ()):
            raise Mistake(f"the permission mode {mode}, which is not stricter than {own}")
        budget = None if given.get("budget") is None else msgspec.convert(given["budget"], Budget)
        self._require_budget(budget)
        return derived | {"permission_mode": mode, "budget": None if budget is None else msgspec.to_builtins(budget)}

    def _derive_rules(self) -> Permissions:
        rules = _get_rules(self._child.settings, "permissions")
        _require_stricter(rules, _get_rules(self._parent.settings, "permissions"), "permissions")
        known = {*_get_rules(self._parent.settings, "permissions").allow, *self._list_role_rules()}
        unknown = [rule for rule in rules.allow if rule not in known]
        approved = self._list_approved_rules() if unknown else frozenset()
        if added := [rule for rule in unknown if rule not in approved]:
            raise Mistake(f"the rules that allow {', '.join(added)}")
        return rules

    def _list_role_rules(self) -> tuple[str, ...]:
        task, models = self._child.errand, self._parent.settings.get("models", {})
        name = "" if task is None else task.role
        if not name:
            return ()
        role = msgspec.convert(models[name], Role) if name in models else ROLES.get(name)
        if role is None:
            raise Mistake(f"the role {name}, which does not exist")
        return role.rules

    def _list_approved_rules(self) -> frozenset[str]:
        """Return the rules that a person approved with a plan of the parent."""
        kinds = tuple(KINDS[kind] for kind in (PlanCommitted, QuestionAsked, QuestionAnswered))
        with StoreReader(self._store) as reader:
            events = [entry.event for entry in reader.read_entries(self._parent_run, kinds=kinds)]
        asked: dict[str, PermissionAsked | QuestionAsked] = {
            one.id: one for one in events if isinstance(one, QuestionAsked)
        }
        answers = {one.id: one for one in reversed(events) if isinstance(one, QuestionAnswered)}
        plans = [one for one in events if isinstance(one, PlanCommitted)]
        steps = [(plan, step.id) for plan in plans for step in plan.plan.steps]
        return frozenset(rule for plan, step in steps for rule in find_approved_rules(plan, step, asked, answers))

    def _require_budget(self, budget: Budget | None) -> None:
        """Raise Mistake if the worker's budget exceeds all budgets that the parent has had."""
        recorded = self._parent.settings.get("budget")
        first = Budget() if recorded is None else msgspec.convert(recorded, Budget)
        with StoreReader(self._store) as reader:
            entries = reader.read_entries(self._parent_run, kinds=(KINDS[BudgetChanged],))
        changes = [entry.event.budget for entry in entries if isinstance(entry.event, BudgetChanged)]
        for limit in ("usd", "tokens", "turns"):
            if getattr(first, limit) is None:
                continue
            most = max(value for one in (first, *changes) if (value := getattr(one, limit)) is not None)
            wanted = None if budget is None else getattr(budget, limit)
            if wanted is None or wanted > most:
                raise Mistake(f"the budget of {limit}")

    # Agents

    def _derive_agents(self, *, is_plan: bool) -> tuple[Agent, ...]:
        known = _collect_agents(self._parent.agents)
        first = self._child.agents[0].name
        if self._child.agent != first:
            raise Mistake(f"the first agent, which is {first} and not {self._child.agent}")
        if first == DEFAULT_WORKER_AGENT and first not in known:
            built_in = load_roster(None, self._store.folder).resolve_team(DEFAULT_WORKER_AGENT)
            known = {agent.name: agent for agent in built_in}
        return tuple(_derive_agent(agent, known, is_plan=is_plan) for agent in self._child.agents)

    # The task

    def _derive_task(self) -> WorkerTask:
        task, above = self._child.errand, self._parent.errand
        assert task is not None
        remote = "" if above is None or above.origin is None else above.origin.remote
        if above is None or task.origin is None or not remote or task.origin.remote != remote:
            raise Mistake("the repository")
        if task.origin.host == read_host_id(self._store.home):
            raise Mistake("the machine of its repository, which is this one")
        is_single = task.has_checkout and not task.is_here and not task.is_shared and len(task.checkouts) == 1
        if not is_single or self._child.repo != task.path:
            raise Mistake("the place where it works")
        if above.is_unattended and not task.is_unattended:
            raise Mistake("whether a person is asked")
        return structs.replace(task, max_restarts=min(task.max_restarts, max(above.max_restarts, 1)))


def _derive_agent(given: Agent, known: Mapping[str, Agent], *, is_plan: bool) -> Agent:
    """Return the parent's agent with the fields that a host can choose. Raise Mistake if another field differs."""
    above = known.get(given.name)
    if above is None:
        raise Mistake(f"the agent {given.name}, which the parent does not have")
    changes: dict[str, Any] = {name: getattr(given, name) for name in FREE_FIELDS}
    for name in DROPPABLE_FIELDS:
        if not getattr(given, name):
            changes[name] = getattr(given, name)
    tools = {*(DEFAULT_STEP_TOOLS if above.tools is None else above.tools), *STEP_TOOLS}
    if is_plan if given.tools is None else tools.issuperset(given.tools):
        changes["tools"] = given.tools
    if {*given.disallowed_tools} >= {*above.disallowed_tools}:
        changes["disallowed_tools"] = given.disallowed_tools
    if {*given.agents} <= {*above.agents}:
        changes["agents"] = given.agents
    if given.permission_mode == "plan" or (given.permission_mode == "dont-ask" and above.permission_mode == ""):
        changes["permission_mode"] = given.permission_mode
    if given.permissions is not None:
        own, most = given.permissions, above.permissions or Permissions()
        if {*own.allow} <= {*most.allow} and _is_stricter(own, most):
            changes["permissions"] = own
    derived = structs.replace(above, **changes)
    if derived != given:
        names = [name for name in Agent.__struct_fields__ if getattr(derived, name) != getattr(given, name)]
        raise Mistake(f"{', '.join(names)} of the agent {given.name}")
    return derived


def _collect_agents(agents: tuple[Agent, ...]) -> dict[str, Agent]:
    """Return a run's agents, and the members of their teams, keyed by name."""
    own = {agent.name: agent for agent in agents}
    found = dict(own)
    for agent in agents:
        if agent.team is not None:
            for name, member in list_members(agent, own).items():
                found.setdefault(name, member)
    return found


def _derive_guidance(given: Guidance | None, above: Guidance | None) -> Guidance | None:
    """Return the guidance without the files on other machines that the host names.

    Texts are kept. They are as untrusted as the task.
    """
    if given is None:
        return None
    skills = () if above is None else above.skills
    memories = {} if above is None else above.memories
    return structs.replace(
        given,
        skills=tuple(one for one in given.skills if one.source == "repo" or one in skills),
        memories={name: one for name, one in given.memories.items() if memories.get(name) == one},
    )


def _get_rules(settings: Mapping[str, Any], key: str) -> Permissions:
    return msgspec.convert(settings.get(key, {}), Permissions)


def _is_stricter(rules: Permissions, above: Permissions) -> bool:
    return {*rules.deny} >= {*above.deny} and {*rules.ask} >= {*above.ask}


def _require_stricter(rules: Permissions, above: Permissions, what: str) -> Permissions:
    if not _is_stricter(rules, above):
        raise Mistake(f"the rules in {what} that ask or deny")
    return rules
