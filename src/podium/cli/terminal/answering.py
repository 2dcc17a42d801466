"""Giving an answer from a command, and telling what came of it."""

from __future__ import annotations

import getpass
from pathlib import Path

from ...runs.run_state import state
from ...store.sqlite.open_requests import Answer, Waiting, answer, decided
from . import exit_codes
from .say import say


def told(store: Path, one: Waiting, given: Answer) -> int:
    """Give the answer and say so; the exit code. Raises Answered where somebody was faster."""
    counts = answer(store, one, given)
    if counts != given:
        raise decided(counts)
    if state(one.summary) == "running":
        say(f"{given.id} is answered")
    else:
        say(f"{given.id} is answered; nobody works on run {one.summary.id} now: podium resume {one.summary.id}")
    return exit_codes.GOAL_MET


def whoever() -> str:
    """Who answers: the person's name on this machine."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "somebody"
