"""Submit the user's answer to a request, and report the result."""

from __future__ import annotations

from ...files.settings import Settings
from ...runs.answers import GivenAnswer, NewAnswer, answer_request
from ...store.open_requests import OpenRequest
from ...values.event import PermissionAnswered
from ...values.plan import WorkPlan
from .global_options import get_command_actor
from .text import print_to_stderr


def submit_answer(
    settings: Settings, one: OpenRequest, answer: NewAnswer, *, plan: WorkPlan | None = None
) -> GivenAnswer:
    """Submit an answer and print a confirmation. Raise AlreadyAnswered if the request already has another answer."""
    run, by = one.summary.id, get_command_actor()
    given = answer_request(settings.store, run, one.asked, answer, by=by, home=settings.home, plan=plan)
    id, how = one.asked.id, "was answered"
    if isinstance(given.answered, PermissionAnswered):
        how = "was allowed" if given.answered.is_allowed else "was denied"
    if one.summary.phase == "running":
        print_to_stderr(f"{id} {how}")
    else:
        print_to_stderr(f"{id} {how}, but run {run} is not running; resume it with: podium resume {run}")
    return given
