"""Memory: what was said in an earlier run, as the agents of the next one recall it.

A conversation is a chain of runs, each of which names the one before it. An agent that answered
alone recalls its turns with all the steps that it took in them; what came of several agents is
recalled as what the person asked and was answered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..values.errors import Inconsistent
from ..values.event import OperationEnded, RunEnded, RunStarted, decode
from .engine import Past
from .scope import Scope
from .session import turns_at
from .timeline import Row, Timeline

UNFINISHED = "[this was not finished]"


class Recalled(NamedTuple):
    """What was said in a run, and the run that it went on from; none where it was the first."""

    past: list[Past]
    after: str


def recalled(rows: Sequence[Row]) -> Recalled:
    """What a run that is over, or at rest, has to tell."""
    started = decode(rows[0].line).event
    assert isinstance(started, RunStarted)
    return Recalled(list(_said(rows, started)), started.after)


def _said(rows: Sequence[Row], started: RunStarted) -> Iterator[Past]:
    begun = next((decode(row.line) for row in rows if row.key == f"{started.agent}/operation_started#1"), None)
    if begun is None:
        return
    timeline = Timeline(rows[0].run, _Over())
    timeline.load(rows)
    # With the digest as it was written: nothing is done again here, so this release need not make the same.
    place = Scope(timeline, started.agent, operation=started.agent, digest=begun.digest)
    first = started.agents[0]
    is_alone = first.team is None and first.router is None and first.handoff is None
    turns = list(turns_at(place)) if is_alone else []
    yield from turns
    answered = place.recall(OperationEnded)
    if answered is None or answered.failure is not None:
        turn = place.at(f"turn#{len(turns) + 1}") if is_alone else place.at("answer")
        yield Past(prompt=started.request.text, reply=_so_far(rows[-1]), scope=turn)
    elif not is_alone:
        yield Past(prompt=started.request.text, reply=answered.text, scope=place.at("answer"))


def _so_far(last: Row) -> str:
    """What there is of an answer that never came to its end."""
    ended = decode(last.line).event
    parts = ended.parts if isinstance(ended, RunEnded) else ()
    return "\n\n".join([*(part.text for part in parts if part.text.strip()), UNFINISHED])


class _Over:
    """The lease on a run that is only read."""

    epoch = 0

    def append(self, row: Row, *, survives_power_loss: bool, mail: int | None) -> None:
        raise Inconsistent(f"run {row.run} is only read here, and nothing can be added to it")

    async def settled(self, *, is_alone: bool = True) -> None:
        """There is nothing to write."""
