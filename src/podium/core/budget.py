"""Budgets: what the operations of a run may use, as the same tree as the run itself.

A limit holds for an operation and all below it. Before each model call an estimate is reserved
all the way up, so that parallel agents cannot overdraw together; afterwards the recorded usage
counts instead. What was used is read off the timeline, so a resumed run remembers it. A limit
that is reached is a hard stop. A worker that is sent away is lent its part, which is kept for it
until it returns; then what it used counts. The limits of the run as a whole can be changed while it works:
what was refused before stays refused, and the next call finds the new ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from typing import Any

from msgspec import structs

from ..values.agent import Budget
from ..values.errors import AgentFailed, Failure
from ..values.event import BudgetChanged
from ..values.usage import NO_USAGE, Usage
from .timeline import Timeline

USAGE_FIELDS = {"usd": "usd", "tokens": "tokens", "turns": "calls"}
"""What limits are counted by: of a budget's names, those of the usage."""
LIMIT_UNITS = {"usd": "USD", "tokens": "tokens", "turns": "model calls"}

BUDGET_UNCHANGED = "the budget stays as it is"
"""How the notice begins that a change of a run's limits came to nothing."""


class Allowance:
    """What one operation may use, within what is above it. `path` is empty for the whole run."""

    def __init__(
        self, timeline: Timeline, path: str, budget: Budget | None, *, of: str, above: Allowance | None = None
    ) -> None:
        self.timeline = timeline
        self.path = path
        self.budget = budget
        self._owner = of
        self._parent = above
        self._reserved = NO_USAGE
        if above is None:
            for change in timeline.find_events_below(path, BudgetChanged):
                self.change_limits(change.budget)

    def for_operation(self, path: str, budget: Budget | None, *, of: str) -> Allowance:
        """The allowance of an operation below; the same one where it has no budget of its own."""
        return self if budget is None else Allowance(self.timeline, path, budget, of=of, above=self)

    def change_limits(self, limits: Budget) -> None:
        """Hold to these limits from the next call on, and to the others as before."""
        self.budget = override_limits(self.budget, limits)

    @property
    def limits_money(self) -> bool:
        """Whether anything up the tree limits money, so that prices must be known."""
        return any(one.budget is not None and one.budget.usd is not None for one in self._iter_with_parents())

    @contextmanager
    def reserve_call(self, estimate: Usage, *, agent: str) -> Iterator[None]:
        """Room for one model call; raises Failed where there is none."""
        # Those without limits count along: they may be given some before the call is over.
        limits = list(self._iter_with_parents())
        for limit in limits:
            if (stop := limit._explain_exceeded_limit(estimate)) is not None:
                raise AgentFailed(Failure(kind="budget", agent=agent, message=stop))
        for limit in limits:
            limit._reserved = limit._reserved + estimate
        try:
            yield
        finally:
            for limit in limits:
                limit._reserved = _subtract_usage(limit._reserved, estimate)

    def compute_worker_budget(self, own: Budget | None, *, share: float, agent: str) -> Budget | None:
        """What a worker may use that is sent from here; None where nothing is limited.

        It has its own budget as far as there is room for that; where it has none, a share of what is left.
        Raises Failed where nothing is left.
        """
        granted_limits: dict[str, Any] = {}
        for name, left in self._remaining_limits().items():
            wanted = None if own is None else getattr(own, name)
            granted = min(left, left * share if wanted is None else wanted)
            granted_limits[name] = granted if name == "usd" else min(int(left), max(1, int(granted)))
            if granted_limits[name] <= 0:
                message = f"nothing of the budget is left for a worker: {left:,.6g} {LIMIT_UNITS[name]}"
                raise AgentFailed(Failure(kind="budget", agent=agent, message=message))
        if (files := self._remaining_files()) is not None:
            granted_limits["files_changed"] = files
        return Budget(**granted_limits) if granted_limits else None

    def _remaining_limits(self) -> dict[str, float]:
        """What is neither spent nor kept for somebody, of each limit that holds here."""
        left: dict[str, float] = {}
        for one in self._iter_with_parents():
            for limit, used, kept, name in one._iter_limits():
                if limit is not None:
                    left[name] = min(left.get(name, inf), limit - used - kept)
        return left

    def _remaining_files(self) -> int | None:
        """How many files may still be changed; None where that is not limited. Nothing is kept of them."""
        limits = [(one, one.budget.files_changed) for one in self._iter_with_parents() if one.budget is not None]
        left = [most - len(one.timeline.files_changed_below(one.path)) for one, most in limits if most is not None]
        return max(0, min(left)) if left else None

    def require_file_budget(self, files: set[str], *, agent: str) -> None:
        """Room for changing these files; raises Failed where there is none."""
        for limit in self._iter_with_parents():
            most = None if limit.budget is None else limit.budget.files_changed
            if most is None:
                continue
            changed = limit.timeline.files_changed_below(limit.path) | files
            if len(changed) > most:
                message = (
                    f"{limit._owner_label} budget of {most} changed files is used up; {len(changed)} would be changed"
                )
                raise AgentFailed(Failure(kind="budget", agent=agent, message=message))

    def _iter_with_parents(self) -> Iterator[Allowance]:
        place: Allowance | None = self
        while place is not None:
            yield place
            place = place._parent

    def _explain_exceeded_limit(self, estimate: Usage) -> str | None:
        """Why no further call of this size may be made; None where it may."""
        for limit, used, kept, name in self._iter_limits():
            coming = kept + getattr(estimate, USAGE_FIELDS[name])
            if limit is not None and used + coming > limit:
                unit = LIMIT_UNITS[name]
                return (
                    f"{self._owner_label} budget of {limit:,g} {unit} has no room for a model call: "
                    f"{used:,.6g} are spent"
                )
        return None

    def _iter_limits(self) -> Iterator[tuple[float | None, float, float, str]]:
        """Of each limit that there can be: the limit, what is spent, what is kept for what is under way, its name."""
        if self.budget is None:
            return
        spent, lent = self.timeline.usage_below(self.path), self.timeline.worker_budgets_below(self.path)
        for name, counted in USAGE_FIELDS.items():
            kept = getattr(self._reserved, counted) + sum(getattr(one, name) or 0 for one in lent)
            yield getattr(self.budget, name), getattr(spent, counted), kept, name

    @property
    def _owner_label(self) -> str:
        return f"{self._owner}'s" if self._owner else "the run's"


def override_limits(budget: Budget | None, limits: Budget) -> Budget:
    """A budget with these limits in the place of its own; those that are left out stay."""
    if budget is None:
        return limits
    return structs.replace(
        budget, **{name: limit for name, limit in structs.asdict(limits).items() if limit is not None}
    )


def combine_strictest(budget: Budget | None, limits: Budget | None) -> Budget | None:
    """A budget in which of each two limits the smaller one holds."""
    if budget is None or limits is None:
        return budget or limits
    both = zip(structs.astuple(budget), structs.astuple(limits), strict=True)
    least = [min((one for one in pair if one is not None), default=None) for pair in both]
    return Budget(**dict(zip(Budget.__struct_fields__, least, strict=True)))


def _subtract_usage(whole: Usage, part: Usage) -> Usage:
    return Usage(
        input_tokens=whole.input_tokens - part.input_tokens,
        output_tokens=whole.output_tokens - part.output_tokens,
        usd=whole.usd - part.usd,
        calls=whole.calls - part.calls,
    )
