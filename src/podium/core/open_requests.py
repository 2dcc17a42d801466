"""Determine which of a run's requests are waiting for a person, and when these requests expire.

Everything that lists, shows, answers or denies requests uses this module: the gate, the inbox, the views and
the commander. A request is open until it is answered, expires, or its operation or its run ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import isinf
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from ..values.action import Action
from ..values.actor import format_actor
from ..values.event import (
    KINDS,
    Entry,
    OperationEnded,
    PermissionAnswered,
    PermissionAsked,
    QuestionAnswered,
    QuestionAsked,
    RunEnded,
)
from .edits import EDITS, Edits, Place
from .redaction import Redaction

if TYPE_CHECKING:
    from asyncio import Event as Flag


class Denial(NamedTuple):
    """The denial of an agent's request, by a person or by Podium."""

    agent: str
    by: str
    comment: str
    at: float


class RequestIndex:
    """The requests and questions of a run.

    With `has_foreign_entries`, another machine may have written some of the entries.
    """

    __slots__ = (
        "_clock",
        "_flags",
        "_redaction",
        "answers",
        "approvals",
        "approved_texts",
        "asked",
        "denials",
        "granted_rules",
        "has_foreign_entries",
    )

    def __init__(self, redaction: Redaction, clock: Callable[[], float], *, has_foreign_entries: bool) -> None:
        self.has_foreign_entries = has_foreign_entries
        self.asked: dict[str, PermissionAsked | QuestionAsked] = {}
        """The requests and questions to the user, keyed by id."""
        self.answers: dict[str, PermissionAnswered | QuestionAnswered] = {}
        """The answers, keyed by the id of the request or question."""
        self.approvals: dict[str, str] = {}
        """Who approved each action that is allowed for the rest of this run, keyed by the action's `repeat_key`."""
        self.approved_texts: dict[str, str] = {}
        """What the person who approved each of these actions was shown, with the same keys."""
        self.granted_rules: tuple[str, ...] = ()
        """The allow rules that were granted permanently in this run."""
        self.denials: dict[str, list[Denial]] = {}
        """The denials of each action, keyed by its `effect_hash`."""
        self._redaction = redaction
        self._clock = clock
        self._flags: dict[str, Flag] = {}
        """Set when the request or question with this id is answered."""

    @property
    def are_all_answered(self) -> bool:
        """Whether no request or question is waiting for an answer."""
        return self.asked.keys() <= self.answers.keys()

    def add_request(self, event: PermissionAsked | QuestionAsked) -> None:
        """Add a request or question."""
        self.asked[event.id] = event

    def add_answer(self, event: PermissionAnswered | QuestionAnswered) -> None:
        """Add an answer. If a request is answered twice, the first answer counts."""
        if self.answers.setdefault(event.id, event) is not event:
            return
        asked = self.asked.get(event.id)
        if isinstance(event, PermissionAnswered) and isinstance(asked, PermissionAsked):
            action = asked.action
            if not event.is_allowed:
                denial = Denial(action.agent, event.by or "podium", event.comment, self._clock())
                self.denials.setdefault(action.effect_hash, []).append(denial)
            # An answer that arrives after the request expired has no effect: the gate asks again.
            elif event.decision != "once" and not is_expired(asked, at=event.at):
                self.approvals[action.repeat_key] = event.by or "a person"
                self.approved_texts[action.repeat_key] = asked.shown
                if event.decision == "always" and event.rule == asked.always != "" and self._is_derived(asked):
                    self.granted_rules += (event.rule,)
        if event.id in self._flags:
            self._flags.pop(event.id).set()

    async def wait_answer(self, id: str) -> PermissionAnswered | QuestionAnswered:
        """Wait for the answer to the request or question with this id, and return it."""
        while id not in self.answers:
            from asyncio import Event as Flag  # imported here because reading a store needs no event loop

            await self._flags.setdefault(id, Flag()).wait()
        return self.answers[id]

    def find_approver(self, action: Action, shown: str) -> str:
        """Return who approved an action for the rest of this run, or an empty string if nobody did.

        Another machine may have recorded the request, and shown the person something else than `shown`.
        """
        key = action.repeat_key
        is_unseen = self.has_foreign_entries and self.approved_texts.get(key) != self._redaction.redact_text(shown)
        return "" if is_unseen else self.approvals.get(key, "")

    def _is_derived(self, asked: PermissionAsked) -> bool:
        """Return whether the rule that a request offered follows from its action, unless this machine recorded it."""
        if not self.has_foreign_entries:
            return True
        from ..policy import generalised  # imported here because few runs move between machines

        return generalised(asked.action) == asked.always


Asked = PermissionAsked | QuestionAsked
Answered = PermissionAnswered | QuestionAnswered
REQUEST_EVENTS = frozenset(
    {PermissionAsked, QuestionAsked, PermissionAnswered, QuestionAnswered, OperationEnded, RunEnded}
)
REQUEST_KINDS = tuple(sorted(KINDS[event] for event in REQUEST_EVENTS))
"""The kinds of entries that `RunRequests` needs."""


class RunRequests(Struct):
    """A run's permission requests and questions, and their answers, updated with each entry."""

    unanswered: dict[str, Entry] = {}
    """All unanswered requests and questions, keyed by id, even if nothing is waiting for an answer any more."""
    answers: dict[str, Answered] = {}
    abandoned: list[str] = []
    """The requests of operations that have ended without an answer."""

    @property
    def place(self) -> Place:
        """The place in the state of a run."""
        return ("view", "requests")

    def apply(self, entry: Entry, edits: Edits = EDITS) -> None:
        """Apply the next entry."""
        if type(entry.event) not in REQUEST_EVENTS:
            return
        match entry.event:
            case PermissionAsked(id=id) | QuestionAsked(id=id):
                edits.put(self, "unanswered", id, entry)
            case PermissionAnswered() | QuestionAnswered() as answered:
                if answered.id not in self.answers:
                    edits.put(self, "answers", answered.id, answered)
                edits.drop(self, "unanswered", answered.id)
            case OperationEnded():
                self._abandon(f"{entry.operation}/", edits)
            case RunEnded():
                self._abandon("", edits)

    def _abandon(self, below: str, edits: Edits) -> None:
        """Abandon the requests of the operations below a path."""
        for id, asked in self.unanswered.items():
            if f"{asked.operation}/".startswith(below) and id not in self.abandoned:
                edits.add(self, "abandoned", id)

    def list_open(self, *, now: float, posted: Collection[str] = ()) -> dict[str, Entry]:
        """Return the requests that are waiting for an answer, keyed by id.

        `posted` contains the ids of requests whose answers are in the run's mailbox but may not be on the timeline yet.
        """
        return {
            id: entry
            for id, entry in self.unanswered.items()
            if id not in self.abandoned and id not in posted and not is_expired(entry.event, at=now)
        }


# Answers
def describe_answerer(answered: Answered) -> str:
    """Return who answered a request, and how, as in `ada (terminal)`. Parts that are not recorded are omitted."""
    return format_actor(answered.by, answered.channel)


def describe_closing(answered: Answered | None) -> str:
    """Return how a request was closed, as the end of a sentence."""
    if answered is None or answered.channel == "timeout" or (answered.by == "podium" and not answered.channel):
        return "timed out"
    return f"was answered by {describe_answerer(answered) or 'somebody'}"


# Expiry
def compute_expiry(asked_at: float, seconds: float) -> float:
    """Return the expiry time of a request made at `asked_at` that can wait for `seconds`, or 0 if it never expires."""
    return 0.0 if isinf(seconds) else asked_at + seconds


def is_expired(asked: object, *, at: float) -> bool:
    """Return whether a request has expired at the time `at`. A question never expires."""
    return isinstance(asked, PermissionAsked) and 0 < asked.action.expires_at < at


def must_ask_again(asked: PermissionAsked, answered: Answered | None, *, now: float) -> bool:
    """Return whether a request has expired without a valid answer, so that the agent has to ask again.

    A denial is valid at any time, an approval only until the request expires.
    """
    if isinstance(answered, PermissionAnswered):
        return answered.is_allowed and is_expired(asked, at=answered.at)
    return is_expired(asked, at=now)


def compute_seconds_left(asked_at: float, allowed: float, *, watched_since: float, now: float) -> float:
    """Return how many more seconds a worker's request can wait. Periods when nobody could answer do not count."""
    return max(asked_at, watched_since) + allowed - now


TIMEOUT = "nobody answered within"
AUTOMATIC = ("podium", "commander")
"""The names recorded in `by` for answers that were given by Podium itself, not by a person."""


def describe_timeout(seconds: float) -> str:
    """Return the reason for denying a request that nobody answered in time."""
    return f"{TIMEOUT} {seconds:g} s"


def is_automatic_denial(answered: Answered) -> bool:
    """Return whether Podium itself denied a request."""
    return isinstance(answered, PermissionAnswered) and answered.by in AUTOMATIC and not answered.is_allowed


def is_timeout_denial(answered: Answered) -> bool:
    """Return whether a request was denied because nobody answered it in time."""
    is_late = isinstance(answered, PermissionAnswered) and answered.comment.startswith(TIMEOUT)
    return is_late and is_automatic_denial(answered)
