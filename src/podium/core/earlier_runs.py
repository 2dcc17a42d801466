"""Load the conversation history that a run inherits from the run that it continues.

A conversation is a chain of runs, each of which refers to the one before it. An agent that answered
alone gets its earlier turns with all their steps. When several agents worked on the answer, the
history contains only the user's request and the final answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import NamedTuple

from ..values.errors import JournalMismatch, Mistake
from ..values.event import OperationEnded, RunEnded, RunStarted, decode_entry
from .engine import PastTurn
from .journal_rows import JournalRow
from .scope import Scope
from .session import read_past_turns
from .timeline import Timeline

UNFINISHED_MARK = "[This answer is incomplete.]"

ReadRows = Callable[[str], Awaitable[Sequence[JournalRow]]]
"""Returns the timeline of a run, which is empty if there is no such run."""


class EarlierRun(NamedTuple):
    """An earlier run: its turns, and the id of the run that it continued (empty for the first run)."""

    turns: list[PastTurn]
    after: str


async def load_earlier_turns(run: str, read_rows: ReadRows) -> tuple[PastTurn, ...]:
    """Return the turns of a run and of the runs that it continued, oldest first. Raise Mistake if a run is missing."""
    turns: list[PastTurn] = []
    while run:
        if not (rows := await read_rows(run)):
            raise Mistake(f"cannot continue from run {run!r}: not found; run podium ps to list the runs")
        earlier = _read_earlier_run(rows)
        turns[:0], run = earlier.turns, earlier.after
    return tuple(turns)


def _read_earlier_run(rows: Sequence[JournalRow]) -> EarlierRun:
    """Read the turns of a run that has ended or has no owner."""
    started = decode_entry(rows[0].line).started
    return EarlierRun(list(_iter_past_turns(rows, started)), started.after)


def _iter_past_turns(rows: Sequence[JournalRow], started: RunStarted) -> Iterator[PastTurn]:
    begun = next((decode_entry(row.line) for row in rows if row.key == f"{started.agent}/operation_started#1"), None)
    if begun is None:
        return
    timeline = Timeline(rows[0].run, _ReadOnlyLease())
    timeline.load(rows)
    # Use the recorded digest: nothing is executed again here, so it need not match what this release would compute.
    place = Scope(timeline, started.agent, operation=started.agent, digest=begun.digest)
    first = started.agents[0]
    is_alone = first.team is None and first.router is None and first.handoff is None
    turns = list(read_past_turns(place)) if is_alone else []
    yield from turns
    answered = place.find_outcome(OperationEnded)
    if answered is None or answered.failure is not None:
        turn = place.child(f"turn#{len(turns) + 1}") if is_alone else place.child("answer")
        yield PastTurn(prompt=started.request.text, reply=_join_partial_answer(rows[-1]), scope=turn)
    elif not is_alone:
        yield PastTurn(prompt=started.request.text, reply=answered.text, scope=place.child("answer"))


def _join_partial_answer(last: JournalRow) -> str:
    """Return the partial answers that the run ended with, followed by a note that the answer is unfinished."""
    ended = decode_entry(last.line).event
    parts = ended.parts if isinstance(ended, RunEnded) else ()
    return "\n\n".join([*(part.text for part in parts if part.text.strip()), UNFINISHED_MARK])


class _ReadOnlyLease:
    """A lease for reading a run; it rejects all writes."""

    epoch = 0

    def append(self, row: JournalRow, *, survives_power_loss: bool, mail: int | None) -> None:
        raise JournalMismatch(f"run {row.run} is open for reading only and cannot be written to")

    async def wait_written(self, *, is_alone: bool = True) -> None:
        """Return at once: nothing is ever queued."""
