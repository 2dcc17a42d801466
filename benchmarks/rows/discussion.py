"""How a discussion grows with rounds and members: the tokens sent to the models for each message, and its time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

from msgspec import structs

from ..discussion_scenario import COORDINATOR, MEMBER
from ..harness import (
    LIMIT,
    OURS,
    Bench,
    Child,
    Sample,
    Spread,
    interleave_samples,
    start_child,
    start_model,
)
from ..result_line import Line, Unit, make_line, max_ratio

TIMES = 7
SHAPES = ((2, 5), (4, 5), (8, 5), (4, 2), (4, 20))
"""The number of rounds and of members: first the rounds grow, then the members."""

SMALL_SHAPES = ((2, 2), (4, 2))
TOKENS = Unit("tokens")


class CountedCall(NamedTuple):
    """A call as the model counted it: the caller, and how many tokens were new and how many repeated."""

    who: str
    new: int
    repeated: int


Count = Callable[[CountedCall], int]

FIGURES: dict[str, Count] = {
    "sent to members": lambda call: call.new + call.repeated if call.who == MEMBER else 0,
    "new to members": lambda call: call.new if call.who == MEMBER else 0,
    "sent to coordinator": lambda call: call.new + call.repeated if call.who == COORDINATOR else 0,
    "new to coordinator": lambda call: call.new if call.who == COORDINATOR else 0,
}
"""The figures that are counted for the calls."""

GOAL = max_ratio(1.25)
"""The goal for new tokens: if prompts repeated earlier rounds, enough rounds would exceed any bound.

There is no goal for all tokens sent. A member continues its own conversation, which is sent again each time,
verbatim, so that providers can cache it. Dropping it would be cheaper, but would make the discussion worse.
"""


def lines(bench: Bench) -> Iterator[Line]:
    """If no round repeats earlier ones, the amount sent per message does not depend on the number of rounds."""
    with ExitStack() as stack:
        file = bench.folder / "heard"
        url = stack.enter_context(start_model("benchmarks.children.counting_model", str(file)))
        children = {
            OURS: stack.enter_context(start_child("children.podium_discussion", name="podium")),
            LIMIT: stack.enter_context(start_child("children.raw_discussion", name="raw aiohttp")),
        }
        for one in children.values():
            one.ask("discuss", url=url, rounds=1, members=1)  # load what is only loaded once
        for rounds, members in SMALL_SHAPES if bench.is_quick else SHAPES:
            talks = {name: Discussions(one, file, rounds=rounds, members=members) for name, one in children.items()}
            asked = {name: partial(one.take, url) for name, one in talks.items()}
            taken = interleave_samples(asked, rounds=bench.scale_count(TIMES, quick=1))
            what = f"{rounds} rounds, {members} members, a message"
            for figure, count in FIGURES.items():
                counted = {name: Spread.from_values(one.count_per_message(count)) for name, one in talks.items()}
                goals = (GOAL,) if figure.startswith("new") else ()
                yield Line(row="discussion", what=f"{what}: {figure}", unit=TOKENS, figures=counted, goals=goals)
            yield make_line(
                bench, taken, row="discussion", what=f"{what}: time", unit=Unit("ms", 1e3 / (rounds * members))
            )


class Discussions:
    """Discussions of one size by one program, and the calls that the models received in each."""

    def __init__(self, one: Child, file: Path, *, rounds: int, members: int) -> None:
        self._one = one
        self._file = file
        self._shape = {"rounds": rounds, "members": members}
        self._messages = rounds * members
        self._counted_calls: list[list[CountedCall]] = []

    def take(self, url: str) -> Sample:
        """Run one discussion. It has failed if members were not called exactly once a round."""
        before = self._file.stat().st_size
        sample = self._one.ask("discuss", url=url, **self._shape)
        with self._file.open() as file:
            file.seek(before)
            calls = [CountedCall(who, int(new), int(repeated)) for who, new, repeated in map(str.split, file)]
        self._counted_calls.append(calls)
        missing = abs(self._messages - sum(call.who == MEMBER for call in calls))
        return structs.replace(sample, failed=sample.failed + missing)

    def count_per_message(self, count: Count) -> list[float]:
        """Return a count over the calls of each discussion, divided by its number of messages."""
        return [sum(map(count, calls)) / self._messages for calls in self._counted_calls]
