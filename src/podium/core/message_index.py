"""Index the messages to the agents of a run that have not been delivered, and the receipts for those that they sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..values.event import MessageAcknowledged, MessageReceived, MessagesDelivered

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
