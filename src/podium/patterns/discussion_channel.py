"""The channel of a discussion: its messages and votes, and how far each member has read.

Only broadcasts, votes and absences are shared. Each member receives each of them once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ..values.event import Broadcast, Voted
from ..values.request import quote_lines
from .verdict import neutralise


class AbsentMember(NamedTuple):
    """A member that took no part in a round, and the reason."""

    author: str
    round: int
    why: str


ChannelMessage = Broadcast | Voted | AbsentMember


@dataclass
class Channel:
    """The messages that all members share, in order."""

    log: list[ChannelMessage] = field(default_factory=list)
    votes: dict[str, Voted] = field(default_factory=dict)
    """The latest vote of each member."""
    read_until: dict[str, int] = field(default_factory=dict)

    def add(self, message: ChannelMessage) -> None:
        """Add a message to the channel."""
        self.log.append(message)
        if isinstance(message, Voted):
            self.votes[message.author] = message

    def unread_messages(self, name: str) -> list[ChannelMessage]:
        """Return the messages of others that a member has not read yet."""
        return [one for one in self.log[self.read_until.get(name, 0) :] if one.author != name]

    def mark_read(self, name: str, until: int) -> None:
        """Mark the first `until` messages as read by a member."""
        self.read_until[name] = until

    def list_broadcasts(self, round: int | None = None) -> list[Broadcast]:
        """Return all broadcasts, or those of one round."""
        return [one for one in self.log if isinstance(one, Broadcast) and round in (None, one.round)]

    def has_consensus(self, names: Iterable[str]) -> bool:
        """Return whether each of these members is ready, by its latest vote."""
        voted = [self.votes.get(name) for name in names]
        return bool(voted) and all(vote is not None and vote.ready for vote in voted)


def format_messages(messages: Iterable[ChannelMessage]) -> str:
    """Format messages with author and round, quoted so that no line can pass for another author's."""
    return "".join(f"\n{_format_message(one)}\n" for one in messages)


def _format_message(message: ChannelMessage) -> str:
    match message:
        case Broadcast():
            return f"[{message.author}, round {message.round}]{quote_lines(neutralise(message.text))}"
        case Voted():
            vote = "ready to conclude" if message.ready else "not ready to conclude"
            reason = f": {neutralise(' '.join(message.reason.split()))}" if message.reason.strip() else ""
            return f"[{message.author}, round {message.round}, votes] {vote}{reason}"
        case AbsentMember():
            return (
                f"[{message.author}, round {message.round}, took no part] {neutralise(' '.join(message.why.split()))}"
            )
