"""Ask the user a question and wait for the answer, which can come from any process and after a restart."""

from __future__ import annotations

import secrets
from itertools import count

from msgspec import structs

from ..values.event import KINDS, QuestionAnswered, QuestionAsked
from ..values.limits import Unattended
from .journal_rows import compute_digest
from .scope import Scope


async def ask_question(
    scope: Scope, question: QuestionAsked, *, unattended: Unattended | None
) -> QuestionAnswered | None:
    """Record a question once and return the answer, or None if nobody is available to answer.

    The question is recorded with an id and the digest of the text that the user sees. If an answer was given for a
    different text, it does not count, and the question is asked again. The caller's timeouts are paused until the
    answer arrives. If `unattended` is `park`, the whole run is paused instead.
    """
    timeline = scope.timeline
    digest = compute_digest(question.shown) if question.shown else ""
    for number in count(1):
        asked = scope.child(f"{KINDS[QuestionAsked]}#{number}").find_outcome(QuestionAsked)
        if asked is None and unattended == "deny":
            return None
        asked = scope.record(asked or structs.replace(question, id=secrets.token_hex(6), digest=digest))
        if asked.id not in timeline.index.requests.answers:
            if unattended == "deny":
                return None
            await timeline.wait_written()
            if unattended == "park":
                timeline.work.pause()
                await timeline.work.wait_while_paused()
            timeline.links.report_waiting(asked.id)
        with timeline.work.timeouts.pause_timeouts(scope.path):
            answered = await timeline.index.requests.wait_answer(asked.id)
        assert isinstance(answered, QuestionAnswered)
        if answered.digest == asked.digest:
            return answered
    raise AssertionError("unreachable: the loop ends only with an answer")
