"""Giving an answer from a command, and telling what came of it."""

from __future__ import annotations

import getpass
from pathlib import Path

from ...runs.run_lookup import derive_run_state
from ...store.sqlite.open_requests import Answer, OpenRequest, answer_request, as_answered_error
from . import exit_codes
from .text import print_to_stderr


def submit_answer(store: Path, one: OpenRequest, new_answer: Answer) -> int:
    """Give the answer and say so; the exit code. Raises Answered where somebody was faster."""
    counts = answer_request(store, one, new_answer)
    if counts != new_answer:
        raise as_answered_error(counts)
    if derive_run_state(one.summary) == "running":
        print_to_stderr(f"{new_answer.id} is answered")
    else:
        print_to_stderr(
            f"{new_answer.id} is answered; nobody works on run {one.summary.id} now: podium resume {one.summary.id}"
        )
    return exit_codes.GOAL_MET


def get_username() -> str:
    """Who answers: the person's name on this machine."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "somebody"
