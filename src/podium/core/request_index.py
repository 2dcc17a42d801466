"""Index the requests and questions of a run: their answers, and what the answers allow for the rest of the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ..values.action import Action
from ..values.event import PermissionAnswered, PermissionAsked, QuestionAnswered, QuestionAsked
from .open_requests import is_expired
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
