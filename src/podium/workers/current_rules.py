"""Answer a worker's permission request according to the current rules.

The rules may have changed since the worker started, because a person may have allowed or denied an action
permanently. The restrictions that the run and its agents started with still apply: if they require a person's
approval, no later rule can allow the action.
"""

from __future__ import annotations

import msgspec

from ..files.settings import Settings
from ..policy import Rules, check, narrow_rules
from ..runs.answers import NewAnswer, get_shown
from ..values.agent import Permissions
from ..values.event import PermissionAsked, RunStarted

COMMANDER = "commander"
"""The value of `by` in answers from the commander."""


def decide_by_rules(asked: PermissionAsked, settings: Settings, restrictions: Rules, *, run: str) -> NewAnswer | None:
    """Return an answer to a worker's request according to the rules, or None if a person must decide."""
    if asked.action.run != run:
        return None  # a worker cannot ask on behalf of another run
    changed = sum(line.startswith(("+", "-")) for line in asked.shown.splitlines())
    verdict = check(asked.action, narrow_rules(settings.build_rules(), restrictions), changed_lines=changed)
    if verdict.decision == "deny":
        return NewAnswer(shown=get_shown(asked), decision="deny", comment=verdict.reason)
    # If no rule applies to the action, only the worker knows why it asked, so a person must decide.
    if verdict.decision == "allow" and verdict.rule is not None:
        return NewAnswer(shown=get_shown(asked), decision="once")
    return None


def collect_restrictions(started: RunStarted) -> Rules:
    """Return the deny and ask rules that a run and its agents started with."""
    recorded = [
        msgspec.convert(started.settings[name], Permissions)
        for name in ("permissions", "narrowing")
        if name in started.settings
    ]
    rules = Rules()
    for one in (*recorded, *(agent.permissions for agent in started.agents if agent.permissions is not None)):
        rules = narrow_rules(rules, Rules(ask=one.ask, deny=one.deny))
    return rules
