"""Determine which of a run's requests are waiting for a person, and when these requests expire.

Everything that lists, shows, answers or denies requests uses this module: the gate, the inbox, the views and
the commander. A request is open until it is answered, expires, or its operation or its run ends.
"""

from __future__ import annotations

from collections.abc import Collection
from math import isinf

from msgspec import Struct

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
