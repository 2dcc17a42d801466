"""What the current rules say about a worker's permission request.

The rules may have changed since the worker started, because a person has allowed or denied something
permanently. Restrictions that its run and agents started with still apply: a later rule allows nothing that
they require asking for.
"""

from __future__ import annotations

import msgspec

from ..policy import Rules, check, narrow_rules
from ..setup.settings import Settings
from ..values.agent import Permissions
from ..values.event import RunStarted
from .wire.wire_message import Approve, Deny, PermissionRequest, PermissionResponse

MAX_SHOWN_LENGTH = 256 * 1024
"""The maximum length of a diff on the wire; the timeline has all of it."""


def decide_by_rules(
    request: PermissionRequest, settings: Settings, restrictions: Rules, *, run: str
) -> PermissionResponse | None:
    """Return the rules' answer to a worker's request, or None if a person decides."""
    if request.action.run != run:
        return None  # a worker may not ask on behalf of another run
    if len(request.shown) >= MAX_SHOWN_LENGTH:
        return None  # a truncated diff cannot be evaluated
    changed = sum(line.startswith(("+", "-")) for line in request.shown.splitlines())
    verdict = check(request.action, narrow_rules(settings.build_rules(), restrictions), changed_lines=changed)
    if verdict.decision == "deny":
        return PermissionResponse(request_id=request.id, result=Deny(comment=verdict.reason))
    # An action that needs no rule was asked for another reason, which is not known here.
    if verdict.decision == "allow" and verdict.rule is not None:
        return PermissionResponse(request_id=request.id, result=Approve(scope="once"))
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
