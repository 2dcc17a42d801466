"""Clearance: what the rules say by now about something that a worker asks for.

They may say more than when the worker began, because a person has allowed or forbidden something for good since.
What its run and its agents were held to then holds still: a later rule allows nothing that these want asked.
"""

from __future__ import annotations

import msgspec

from ..policy import Rules, check, narrow_rules
from ..setup.settings import Settings
from ..values.agent import Permissions
from ..values.event import RunStarted
from .wire.wire_message import Approve, Deny, PermissionRequest, PermissionResponse

MAX_SHOWN_LENGTH = 256 * 1024
"""More than this of a diff does not go over the wire; the whole is on the timeline."""


def decide_by_rules(
    request: PermissionRequest, settings: Settings, restrictions: Rules, *, run: str
) -> PermissionResponse | None:
    """The answer of the rules to the worker of a run; None where a person decides."""
    if request.action.run != run:
        return None  # nobody speaks for another
    if len(request.shown) >= MAX_SHOWN_LENGTH:
        return None  # what is cut cannot be judged
    changed = sum(line.startswith(("+", "-")) for line in request.shown.splitlines())
    verdict = check(request.action, narrow_rules(settings.build_rules(), restrictions), changed_lines=changed)
    if verdict.decision == "deny":
        return PermissionResponse(request_id=request.id, result=Deny(comment=verdict.reason))
    # What needs no rule was asked for another reason, which is not known here.
    if verdict.decision == "allow" and verdict.rule is not None:
        return PermissionResponse(request_id=request.id, result=Approve(scope="once"))
    return None


def collect_restrictions(started: RunStarted) -> Rules:
    """What a run and its agents must not do, or not without asking, as it began."""
    recorded = [
        msgspec.convert(started.settings[name], Permissions)
        for name in ("permissions", "narrowing")
        if name in started.settings
    ]
    rules = Rules()
    for one in (*recorded, *(agent.permissions for agent in started.agents if agent.permissions is not None)):
        rules = narrow_rules(rules, Rules(ask=one.ask, deny=one.deny))
    return rules
