"""Submit the user's answer to a request, and report the result."""

from __future__ import annotations

from ...core.open_requests import Answered
from ...runs.run_lookup import derive_run_state
from ...store.closed_requests import as_answered_error
from ...store.open_requests import OpenRequest, answer_request
from ...values.event import PermissionAnswered
from ...values.store_address import StoreAddress
from . import exit_codes
from .text import print_to_stderr


def submit_answer(store: StoreAddress, one: OpenRequest, new_answer: Answered) -> int:
    """Submit an answer, print a confirmation and return the exit code.

    Raise AlreadyAnswered if the request already has another answer.
    """
    counts = answer_request(store, one, new_answer)
    if counts != new_answer:
        raise as_answered_error(counts)
    how = "was answered"
    if isinstance(new_answer, PermissionAnswered):
        how = "was allowed" if new_answer.decision in ("once", "run", "always") else "was denied"
    if derive_run_state(one.summary) == "running":
        print_to_stderr(f"{new_answer.id} {how}")
    else:
        print_to_stderr(
            f"{new_answer.id} {how}, but run {one.summary.id} is not running; "
            f"resume it with: podium resume {one.summary.id}"
        )
    return exit_codes.GOAL_MET
