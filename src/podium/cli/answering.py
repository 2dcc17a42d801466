"""Giving an answer from a command, and telling what came of it."""

from __future__ import annotations

import getpass
from pathlib import Path

from ..event import PermissionAnswered
from ..store.inbox import Answer, Waiting, answer
from . import exits
from .say import say
from .state import state


def told(store: Path, one: Waiting, given: Answer) -> int:
    """Give the answer and tell whether it counts; the exit code says the same."""
    counts = answer(store, one, given)
    if counts != given:
        how = counts.decision if isinstance(counts, PermissionAnswered) else "answered"
        say(f"{given.id} was decided before: {how} by {counts.by or 'somebody'}")
        return exits.CONFLICT
    if state(one.summary) == "running":
        say(f"{given.id} is answered")
    else:
        say(f"{given.id} is answered; nobody works on run {one.summary.id} now: podium resume {one.summary.id}")
    return exits.GOAL_MET


def whoever() -> str:
    """Who answers: the person's name on this machine."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "somebody"
