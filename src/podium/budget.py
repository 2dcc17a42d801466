"""Budgets: what the operations of a run may use, as the same tree as the run itself.

A limit holds for an operation and all below it. Before each model call an estimate is reserved
all the way up, so that parallel agents cannot overdraw together; afterwards the recorded usage
counts instead. What was used is read off the timeline, so a resumed run remembers it. A limit
that is reached is a hard stop. The limits of the run as a whole can be changed while it works:
what was refused before stays refused, and the next call finds the new ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import structs

from .agent import Budget
from .errors import Failed, Failure
from .event import BudgetChanged
from .journal import Timeline
from .usage import NOTHING, Usage

STAYS = "the budget stays as it is"
"""How the notice begins that a change of a run's limits came to nothing."""


class Allowance:
    """What one operation may use, within what is above it. `path` is empty for the whole run."""

    def __init__(
        self, timeline: Timeline, path: str, budget: Budget | None, *, of: str, above: Allowance | None = None
    ) -> None:
        self.timeline = timeline
        self.path = path
        self.budget = budget
        self._of = of
        self._above = above
        self._reserved = NOTHING
        if above is None:
            for change in timeline.below(path, BudgetChanged):
                self.change(change.budget)

    def within(self, path: str, budget: Budget | None, *, of: str) -> Allowance:
        """The allowance of an operation below; the same one where it has no budget of its own."""
        return self if budget is None else Allowance(self.timeline, path, budget, of=of, above=self)

    def change(self, limits: Budget) -> None:
        """Hold to these limits from the next call on, and to the others as before."""
        self.budget = revised(self.budget, limits)

    @property
    def limits_money(self) -> bool:
        """Whether anything up the tree limits money, so that prices must be known."""
        return any(one.budget is not None and one.budget.usd is not None for one in self._upwards())

    @contextmanager
    def reserved(self, estimate: Usage, *, agent: str) -> Iterator[None]:
        """Room for one model call; raises Failed where there is none."""
        # Those without limits count along: they may be given some before the call is over.
        limits = list(self._upwards())
        for limit in limits:
            if (stop := limit._stop(estimate)) is not None:
                raise Failed(Failure(kind="budget", agent=agent, message=stop))
        for limit in limits:
            limit._reserved = limit._reserved + estimate
        try:
            yield
        finally:
            for limit in limits:
                limit._reserved = _less(limit._reserved, estimate)

    def must_change(self, files: set[str], *, agent: str) -> None:
        """Room for changing these files; raises Failed where there is none."""
        for limit in self._upwards():
            most = None if limit.budget is None else limit.budget.files_changed
            if most is None:
                continue
            changed = limit.timeline.changed_below(limit.path) | files
            if len(changed) > most:
                message = f"{limit._whose} budget of {most} changed files is used up; {len(changed)} would be changed"
                raise Failed(Failure(kind="budget", agent=agent, message=message))

    def _upwards(self) -> Iterator[Allowance]:
        place: Allowance | None = self
        while place is not None:
            yield place
            place = place._above

    def _stop(self, estimate: Usage) -> str | None:
        """Why no further call of this size may be made; None where it may."""
        if self.budget is None:
            return None
        spent = self.timeline.spent(self.path)
        coming = self._reserved + estimate
        for limit, used, more, unit in (
            (self.budget.usd, spent.usd, coming.usd, "USD"),
            (self.budget.tokens, spent.tokens, coming.tokens, "tokens"),
            (self.budget.turns, spent.calls, coming.calls, "model calls"),
        ):
            if limit is not None and used + more > limit:
                return f"{self._whose} budget of {limit:,g} {unit} has no room for a model call: {used:,.6g} are spent"
        return None

    @property
    def _whose(self) -> str:
        return f"{self._of}'s" if self._of else "the run's"


def revised(budget: Budget | None, limits: Budget) -> Budget:
    """A budget with these limits in the place of its own; those that are left out stay."""
    if budget is None:
        return limits
    return structs.replace(
        budget, **{name: limit for name, limit in structs.asdict(limits).items() if limit is not None}
    )


def _less(whole: Usage, part: Usage) -> Usage:
    return Usage(
        input_tokens=whole.input_tokens - part.input_tokens,
        output_tokens=whole.output_tokens - part.output_tokens,
        usd=whole.usd - part.usd,
        calls=whole.calls - part.calls,
    )
