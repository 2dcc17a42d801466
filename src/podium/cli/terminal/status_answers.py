"""Turn keys and typed text on the status screen into answers to requests, and submit them.

An answer to a plan, decision or review contains the digest of the text that was shown.
"""

from __future__ import annotations

from ...runs.answers import NewAnswer, answer_request, get_shown, resolve_choice
from ...store.open_requests import OpenRequest
from ...system.host_id import get_local_actor
from ...values.errors import Mistake, PodiumError
from ...values.event import PermissionAnswered, PermissionAsked, QuestionAsked
from ...values.plain_text import truncate_text
from ...values.store_address import StoreAddress

MOST_KEYS = 9
"""The number of choices that can be selected with a single key."""


def describe_keys(one: OpenRequest) -> str:
    """Describe which keys answer a request."""
    asked = one.asked
    if isinstance(asked, PermissionAsked):
        return "y approves it, n denies it"
    if asked.kind == "plan":
        return f"y approves the plan, n sends it back with a note; run podium plan {one.summary.id} --edit to change it"
    if asked.kind == "review":
        return "y accepts the step, n rejects it with a note"
    if not asked.choices:
        return 'press "a" to type an answer'
    what = "an answer" if asked.kind == "question" else "a choice"
    return f'press the number of a choice, or press "a" to type {what}'


def has_verdict(one: OpenRequest) -> bool:
    """Return whether a request is answered by approving or rejecting it, not with a choice or free text."""
    return isinstance(one.asked, PermissionAsked) or one.asked.kind in ("plan", "review")


def make_approval(one: OpenRequest) -> NewAnswer:
    """Return the answer that approves a request."""
    if isinstance(one.asked, PermissionAsked):
        return NewAnswer(shown=get_shown(one.asked), decision="once")
    return _make_answer(one.asked, one.asked.choices[0])


def make_denial(one: OpenRequest) -> NewAnswer:
    """Return the answer that denies a permission request."""
    return NewAnswer(shown=get_shown(one.asked), decision="deny")


def make_rejection(asked: QuestionAsked, note: str) -> NewAnswer:
    """Return the answer that rejects a plan or a review with a note.

    Raise Mistake if the note would count as an approval.
    """
    approval, rejection = asked.choices[:2]
    words = note.strip()
    if words.casefold() == approval.casefold():
        raise Mistake(
            f"{truncate_text(words)!r} would be taken as an approval; describe what has to change, or press Esc and "
            "then y to approve"
        )
    return _make_answer(asked, words or rejection)


def make_typed_answer(asked: QuestionAsked, text: str) -> NewAnswer:
    """Return the answer for typed text or for the number of a choice. Raise Mistake if it is not valid."""
    if not text.strip():
        raise Mistake("the answer is empty; type an answer, or press Esc to leave the request open")
    return _make_answer(asked, resolve_choice(asked, text.strip()))


def make_choice(asked: QuestionAsked, number: int) -> NewAnswer:
    """Return the answer for the choice with this number. Raise Mistake if the question has no such choice."""
    if not asked.choices:
        raise Mistake(f'{asked.id} has no choices; press "a" to type an answer')
    return _make_answer(asked, resolve_choice(asked, str(number)))


def _make_answer(asked: QuestionAsked, text: str) -> NewAnswer:
    return NewAnswer(shown=get_shown(asked), text=text)


def submit_on_screen(store: StoreAddress, one: OpenRequest, answer: NewAnswer) -> str:
    """Submit an answer, and return the message to show."""
    try:
        # No key saves a rule, so no home is needed.
        given = answer_request(store, one.summary.id, one.asked, answer, by=get_local_actor("terminal"), home=None)
    except PodiumError as error:
        return str(error)
    if isinstance(given.answered, PermissionAnswered):
        return f"{one.asked.id} is {'approved' if given.answered.is_allowed else 'denied'}"
    return f"{one.asked.id} is answered: {truncate_text(' '.join(given.answered.text.split()), 40)}"
