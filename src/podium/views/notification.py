"""Build the notifications that the user gets when a run needs an answer, finishes or fails.

Notifications are derived from the entries of runs. A notification contains no text from agents, tools or files:
only fixed words, ids and numbers. Therefore, it can safely be shown in a terminal title, passed to a command or sent
to another machine.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ..core.open_requests import RunRequests
from ..values.event import Entry, PermissionAsked, QuestionAsked, RunEnded
from ..values.plain_text import format_count
from ..values.request import Outcome

NotificationEvent = Literal["needs-input", "finished", "failed"]


class Notification(Struct, frozen=True, kw_only=True):
    """A change in a run that is worth reporting to the user.

    `waiting` is the number of the run's open requests, and `request` is the id of the new request. `outcome` is empty
    until the run has ended.
    """

    event: NotificationEvent
    run: str
    at: float
    waiting: int = 0
    request: str = ""
    outcome: Outcome | Literal[""] = ""

    @property
    def text(self) -> str:
        """The notification as a sentence."""
        if self.event == "needs-input":
            verb = "is" if self.waiting == 1 else "are"
            return f"run {self.run} needs you: {format_count(self.waiting, 'request')} {verb} waiting"
        return f"run {self.run} {self.event}"


def notify_of_end(entry: Entry) -> Notification | None:
    """Return the notification if this entry ends its run. Return None for other entries, and if the run was stopped."""
    match entry.event:
        case RunEnded(outcome="cancelled"):
            return None
        case RunEnded(outcome=outcome):
            event: NotificationEvent = "finished" if outcome == "succeeded" else "failed"
            return Notification(event=event, run=entry.run, at=entry.at, outcome=outcome)
    return None


class NotificationBuilder:
    """Derives notifications from the entries of runs, and counts the open requests."""

    def __init__(self) -> None:
        self._requests: dict[str, RunRequests] = {}

    def apply(self, entry: Entry) -> Notification | None:
        """Apply the next entry of a run. Return a notification if the entry is worth reporting."""
        requests = self._requests.setdefault(entry.run, RunRequests())
        requests.apply(entry)
        match entry.event:
            case PermissionAsked(id=id) | QuestionAsked(id=id):
                return Notification(
                    event="needs-input",
                    run=entry.run,
                    at=entry.at,
                    waiting=len(requests.list_open(now=entry.at)),
                    request=id,
                )
        return notify_of_end(entry)

    def withdraw_request(self, id: str) -> None:
        """Stop counting a request that was answered elsewhere, or that expired."""
        for requests in self._requests.values():
            requests.unanswered.pop(id, None)

    def is_waiting(self, id: str, *, now: float) -> bool:
        """Return whether a request is still open."""
        return any(id in requests.list_open(now=now) for requests in self._requests.values())

    def count_waiting(self, *, now: float) -> int:
        """Return the number of open requests of all runs."""
        return sum(len(requests.list_open(now=now)) for requests in self._requests.values())
