"""The channel of a discussion: what was said and voted, and how far each member has heard.

Only explicit broadcasts, votes and exits are shared. Everybody hears each of them once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ..values.event import Broadcast, Voted
from ..values.request import quoted
from .verdict import neutralise


class Gone(NamedTuple):
    """A member that had no say in a round."""

    author: str
    round: int
    why: str


Said = Broadcast | Voted | Gone


@dataclass
class Channel:
    """What everybody may hear, in order."""

    log: list[Said] = field(default_factory=list)
    votes: dict[str, Voted] = field(default_factory=dict)
    """The latest vote of each member."""
    heard: dict[str, int] = field(default_factory=dict)

    def add(self, said: Said) -> None:
        """Put something on the channel."""
        self.log.append(said)
        if isinstance(said, Voted):
            self.votes[said.author] = said

    def news(self, name: str) -> list[Said]:
        """What a member has not heard yet, but for its own words."""
        return [one for one in self.log[self.heard.get(name, 0) :] if one.author != name]

    def has_heard(self, name: str, until: int) -> None:
        """From now on a member has heard the first so many things."""
        self.heard[name] = until

    def broadcasts(self, round: int | None = None) -> list[Broadcast]:
        """What was said, in all or in one round."""
        return [one for one in self.log if isinstance(one, Broadcast) and round in (None, one.round)]

    def agree(self, names: Iterable[str]) -> bool:
        """Whether the latest vote of each of these is that it is ready."""
        voted = [self.votes.get(name) for name in names]
        return bool(voted) and all(vote is not None and vote.ready for vote in voted)


def listed(said: Iterable[Said]) -> str:
    """What was said as data: who, in which round, what; no line of it can pass for somebody else's."""
    return "".join(f"\n{_told(one)}\n" for one in said)


def _told(one: Said) -> str:
    match one:
        case Broadcast():
            return f"[{one.author}, round {one.round}]{quoted(neutralise(one.text))}"
        case Voted():
            vote = "ready to conclude" if one.ready else "not ready to conclude"
            reason = f": {neutralise(' '.join(one.reason.split()))}" if one.reason.strip() else ""
            return f"[{one.author}, round {one.round}, votes] {vote}{reason}"
        case Gone():
            return f"[{one.author}, round {one.round}, took no part] {neutralise(' '.join(one.why.split()))}"
