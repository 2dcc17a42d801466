"""Index what the events of a run mean for its execution: usage, requests, messages, changed files and workers.

The index is updated with each entry that is appended to the timeline, or loaded from it. It keeps only what the
execution looks up; the views compute everything else from the entries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ..values.agent import Budget
from ..values.event import (
    KINDS,
    ActionBegan,
    CallCut,
    CallFailed,
    Entry,
    Event,
    MemberChanged,
    MessageAcknowledged,
    MessageReceived,
    MessagesDelivered,
    ModelReplied,
    PauseAsked,
    PermissionAnswered,
    PermissionAsked,
    QuestionAnswered,
    QuestionAsked,
    RunResumed,
    StopAsked,
    WorkerReturned,
    WorkerSent,
)
from ..values.usage import NO_USAGE, Usage, sum_usage
from .open_requests import RequestIndex
from .proof import PROVING_EVENTS, WorkProof

if TYPE_CHECKING:
    from asyncio import Event as Flag


class MessageIndex:
    """The messages to and from the agents of a run."""

    __slots__ = ("_flags", "offered", "receipts", "undelivered")

    def __init__(self) -> None:
        self.undelivered: dict[str, MessageReceived] = {}
        """The messages to this run's agents that have not been delivered, keyed by id."""
        self.offered: set[str] = set()
        """The ids of messages that an agent has been offered and has not accepted yet."""
        self.receipts: dict[str, bool] = {}
        """Whether each message from this run's agents was delivered, keyed by message id. Excludes pending messages."""
        self._flags: list[Flag] = []
        """Set when the next message arrives."""

    def add_message(self, event: MessageReceived) -> None:
        """Add a message to an agent of the run."""
        self.undelivered[event.id] = event
        flags, self._flags = self._flags, []
        for flag in flags:
            flag.set()

    def remove_delivered(self, event: MessagesDelivered) -> None:
        """Remove messages that were delivered."""
        for id in event.ids:
            self.undelivered.pop(id, None)

    def add_receipt(self, event: MessageAcknowledged) -> None:
        """Add the receipt for a message that an agent of the run sent."""
        self.receipts[event.id] = event.is_delivered

    def list_undelivered(self, agent: str) -> list[MessageReceived]:
        """Return the messages to this agent that have been neither delivered nor offered to one of its sessions."""
        return [one for one in self.undelivered.values() if one.to == agent and one.id not in self.offered]

    async def wait_messages(self, is_receiver: Callable[[str], bool]) -> list[MessageReceived]:
        """Wait until there are undelivered messages to agents for which `is_receiver` is true, and return them."""
        while True:
            agents = {message.to for message in self.undelivered.values() if is_receiver(message.to)}
            if found := [message for agent in agents for message in self.list_undelivered(agent)]:
                return found
            from asyncio import Event as Flag  # imported here because reading a store needs no event loop

            self._flags.append(flag := Flag())
            await flag.wait()


class UnreturnedWorker(NamedTuple):
    """A worker that has not returned a result yet: the operation that started the worker, and the worker's budget."""

    operation: str
    budget: Budget | None


class RunIndex:
    """What the events of a run mean for its execution."""

    __slots__ = (
        "changed_files",
        "is_pausing",
        "last_replies",
        "member_changes",
        "messages",
        "pauses",
        "proof",
        "requests",
        "stop_asked",
        "unreturned_workers",
        "usage",
    )

    def __init__(self, requests: RequestIndex) -> None:
        self.requests = requests
        self.messages = MessageIndex()
        self.usage: dict[str, Usage] = {}
        """The usage of each operation itself."""
        self.last_replies: dict[str, ModelReplied] = {}
        """The last model reply of each operation."""
        self.changed_files: dict[str, set[str]] = {}
        """The files that each operation has changed."""
        self.unreturned_workers: dict[str, UnreturnedWorker] = {}
        """The workers that have not returned, keyed by run id."""
        self.member_changes: dict[str, MemberChanged] = {}
        """The changes made to agents since the run started, keyed by agent name."""
        self.pauses = 0
        """How many times the run was paused and resumed."""
        self.stop_asked = False
        self.is_pausing = False
        self.proof = WorkProof()
        """What the calls of the run's agents prove about their work."""

    def apply(self, entry: Entry) -> None:
        """Update the index with the next entry."""
        event = entry.event
        if (update := _UPDATES.get(type(event))) is not None:
            update(self, entry.operation, event)
        if isinstance(event, PROVING_EVENTS):
            self.proof.apply(entry)

    def usage_below(self, below: str = "") -> Usage:
        """Return the total usage of the operations at or below a path."""
        prefix = f"{below}/" if below else ""
        return sum_usage(used for path, used in self.usage.items() if f"{path}/".startswith(prefix))

    def worker_budgets_below(self, below: str = "") -> list[Budget]:
        """Return the budgets of the workers that were started at or below a path and have not returned."""
        prefix = f"{below}/" if below else ""
        out = (one for one in self.unreturned_workers.values() if f"{one.operation}/".startswith(prefix))
        return [one.budget for one in out if one.budget is not None]

    def files_changed_below(self, path: str) -> set[str]:
        """Return the files that the operations at or below a path have changed."""
        prefix = f"{path}/" if path else ""
        found = [files for operation, files in self.changed_files.items() if f"{operation}/".startswith(prefix)]
        return set().union(*found)

    def _add_usage(self, operation: str, event: ModelReplied | CallFailed | CallCut | WorkerReturned) -> None:
        self.usage[operation] = self.usage.get(operation, NO_USAGE) + event.usage

    def _add_reply(self, operation: str, event: ModelReplied) -> None:
        self._add_usage(operation, event)
        self.last_replies[operation] = event

    def _add_files(self, operation: str, event: ActionBegan) -> None:
        self.changed_files.setdefault(operation, set()).update(event.action.outputs)

    def _add_worker(self, operation: str, event: WorkerSent) -> None:
        self.unreturned_workers[event.run] = UnreturnedWorker(operation, event.budget)

    def _return_worker(self, operation: str, event: WorkerReturned) -> None:
        self._add_usage(operation, event)
        self.unreturned_workers.pop(event.run, None)
        self.changed_files.setdefault(operation, set()).update(event.files)

    def _change_member(self, _: str, event: MemberChanged) -> None:
        self.member_changes[event.member] = event.with_earlier(self.member_changes.get(event.member))

    def _stop(self, _: str, event: StopAsked) -> None:
        self.stop_asked = True

    def _pause(self, _: str, event: PauseAsked) -> None:
        self.is_pausing = True

    def _resume(self, _: str, event: RunResumed) -> None:
        self.pauses += self.is_pausing
        self.is_pausing = False


_UPDATES: dict[type[Event], Callable[[RunIndex, str, Any], None]] = {
    ModelReplied: RunIndex._add_reply,
    CallFailed: RunIndex._add_usage,
    CallCut: RunIndex._add_usage,
    ActionBegan: RunIndex._add_files,
    WorkerSent: RunIndex._add_worker,
    WorkerReturned: RunIndex._return_worker,
    MemberChanged: RunIndex._change_member,
    StopAsked: RunIndex._stop,
    PauseAsked: RunIndex._pause,
    RunResumed: RunIndex._resume,
    PermissionAsked: lambda index, _, event: index.requests.add_request(event),
    QuestionAsked: lambda index, _, event: index.requests.add_request(event),
    PermissionAnswered: lambda index, _, event: index.requests.add_answer(event),
    QuestionAnswered: lambda index, _, event: index.requests.add_answer(event),
    MessageReceived: lambda index, _, event: index.messages.add_message(event),
    MessagesDelivered: lambda index, _, event: index.messages.remove_delivered(event),
    MessageAcknowledged: lambda index, _, event: index.messages.add_receipt(event),
}
INDEXED_KINDS = frozenset(KINDS[event] for event in (*_UPDATES, *PROVING_EVENTS))
"""The kinds of events that change the index."""
