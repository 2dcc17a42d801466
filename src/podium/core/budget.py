"""Enforce budgets: limits on what a run's operations can use, arranged in the same tree as the operations.

A limit applies to an operation and everything below it. Before each model call, the budget for
its prompt and its longest possible reply is reserved at every level up to the run, so that parallel agents
cannot exceed a limit together; afterwards, the recorded usage counts instead. A call that fits only after other
calls end waits for them. Usage is computed from the timeline, so a resumed run keeps its totals.
Reaching a limit is a hard stop. A limit is exceeded only if a provider counts more for a call than was
reserved, and only by the difference. A worker gets its own share, which stays reserved until the worker
returns; then its actual usage counts. The limits of the whole run can be changed during the run: calls
that were refused stay refused, and the next call uses the new limits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf, isinf
from typing import Any

from anyio import move_on_after
from msgspec import structs

from ..values.agent import Budget, override_limits
from ..values.errors import AgentFailed, Failure
from ..values.event import BudgetChanged, TurnEnded
from ..values.usage import NO_USAGE, Usage
from .timeline import Timeline

USAGE_FIELDS = {"usd": "usd", "tokens": "tokens", "turns": "calls"}
"""The `Usage` field that each `Budget` limit is compared with."""
LIMIT_UNITS = {"usd": "USD", "tokens": "tokens", "turns": "model calls"}

BUDGET_UNCHANGED = "the budget was not changed"
"""The start of the notice that a change to a run's limits was rejected."""

DAILY_BUDGET = "the daily budget"
"""The start of the error message for a call that a daily budget refuses."""

ExplainDayBudget = Callable[[], Awaitable[str]]
"""A function that returns a message if a daily budget is used up, and an empty string otherwise."""

SHORTEST_REPLY = 16
"""A call is refused if the budget leaves fewer tokens than this for its reply."""
SMALL_RESERVATION = 8_192
LARGE_RESERVATION = 32_768
RESERVED_SHARE = 8
"""The maximum length of a reply under a limit is the number of remaining tokens divided by this number.

It is at least `SMALL_RESERVATION` and at most `LARGE_RESERVATION` tokens, but never more than the remaining tokens. A
smaller share would cut off long replies, and a larger one would make parallel agents wait for each other.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEstimate:
    """The expected usage of a model call: its prompt, and a reply of at least `output_tokens`."""

    prompt: Usage
    output_tokens: int = 0
    usd_per_token: float = 0.0
    """The price of a reply token."""

    def with_reply(self, tokens: int) -> Usage:
        """Return the usage of the call, assuming that its reply has this many tokens."""
        return structs.replace(self.prompt, output_tokens=tokens, usd=self.prompt.usd + tokens * self.usd_per_token)

    @property
    def least(self) -> Usage:
        """The usage of the call, assuming the shortest useful reply."""
        return self.with_reply(max(self.output_tokens, SHORTEST_REPLY))


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimit:
    """How many seconds an operation can take, and the error message if it takes longer."""

    seconds: float
    message: str


class Allowance:
    """The budget and the reservations of one operation, or of the whole run if `path` is empty."""

    def __init__(
        self,
        timeline: Timeline,
        path: str,
        budget: Budget | None,
        *,
        of: str,
        above: Allowance | None = None,
        explain_day_budget: ExplainDayBudget | None = None,
    ) -> None:
        self.timeline = timeline
        self.path = path
        self.budget = budget
        self._owner = of
        self._above: tuple[Allowance, ...] = () if above is None else (above, *above._above)
        self.explain_day_budget = explain_day_budget
        """The function that checks the daily budgets, or None. Only the allowance of the whole run has it."""
        self._reserved = NO_USAGE
        self._released: asyncio.Event | None = None
        """An event that is set when a running call ends or the limits change; None while no call is waiting for it."""
        if above is None:
            for change in timeline.find_events_below(path, BudgetChanged):
                self.change_limits(change.budget)

    def for_operation(self, path: str, budget: Budget | None, *, of: str) -> Allowance:
        """Return the allowance for an operation below this one. An operation without a budget shares this allowance."""
        return self if budget is None else Allowance(self.timeline, path, budget, of=of, above=self)

    def change_limits(self, limits: Budget) -> None:
        """Apply these limits, starting with the next call; limits that are not given stay unchanged."""
        self.budget = override_limits(self.budget, limits)
        self._announce_release()

    @property
    def limits_money(self) -> bool:
        """Whether this allowance or any above it has a cost limit. If so, prices must be known."""
        return any(one.budget is not None and one.budget.usd is not None for one in self._levels)

    def has_room(self, estimate: CallEstimate, *, agent: str) -> bool:
        """Return whether a call can be made now. If not, it has to wait for running calls to end.

        Raise AgentFailed if the call would exceed a limit even after they end.
        """
        limits = self._limited_levels
        for limit in limits:
            if (stop := limit._explain_exceeded_limit(estimate.least, alone=True)) is not None:
                raise AgentFailed(Failure(kind="budget", agent=agent, message=stop))
        return all(limit._explain_exceeded_limit(estimate.least) is None for limit in limits)

    async def require_day_budget(self, agent: str) -> None:
        """Raise AgentFailed if a daily budget is used up. Calls in flight are not counted yet."""
        explain = self._levels[-1].explain_day_budget
        if explain is not None and (why := await explain()):
            raise AgentFailed(Failure(kind="budget", agent=agent, message=why))

    async def wait_for_release(self, seconds: float) -> None:
        """Wait until a running call ends or the limits change, for at most this many seconds."""
        root = self._levels[-1]
        released = root._released = root._released or asyncio.Event()
        with move_on_after(seconds):
            await released.wait()

    def reserve_call(self, estimate: CallEstimate) -> Reservation:
        """Return a context manager that reserves budget for a model call. Check with `has_room` first."""
        longest = self._longest_reply(estimate)
        reserved = estimate.least if longest is None else estimate.with_reply(longest)
        # Allowances without limits are counted too: they can get limits before the call ends.
        return Reservation(self._levels, reserved, longest_reply=longest)

    def _longest_reply(self, estimate: CallEstimate) -> int | None:
        """Return the maximum length of the reply to a call, in tokens, or None if it is unlimited."""
        if not self._limited_levels:
            return None
        left = self._remaining_limits()
        room = left.get("tokens", inf) - estimate.prompt.tokens
        if "usd" in left and estimate.usd_per_token:
            room = min(room, (left["usd"] - estimate.prompt.usd) / estimate.usd_per_token)
        if isinf(room):
            return None
        share = min(max(room / RESERVED_SHARE, SMALL_RESERVATION), LARGE_RESERVATION)
        return max(1, int(min(room, share)))

    def find_refusal(self, operation: str) -> str | None:
        """Return the error message of the first refused model call in an operation or below it, or None.

        Only calls refused because of a limit that is still in force are considered.
        """
        if self.budget is None and self.explain_day_budget is None:
            return None
        limits = (f"{self._describe_limit(limit, name)} " for limit, _, _, name in self._iter_limits() if limit)
        refusals = (*limits, f"{DAILY_BUDGET} ")
        ends = self.timeline.find_events_below(operation, TurnEnded)
        failures = [end.failure for end in ends if end.failure is not None and end.failure.kind == "budget"]
        return next((one.message for one in failures if one.message.startswith(refusals)), None)

    def describe_overshoot(self) -> str | None:
        """Return a message about the first exceeded limit, or None if no limit was exceeded."""
        for limit, used, _, name in self._iter_limits():
            if limit is not None and used > limit:
                return f"{self._describe_limit(limit, name)} was exceeded by the last reply: {used:,.6g} used"
        return None

    def compute_worker_budget(self, own: Budget | None, *, share: float, agent: str) -> Budget | None:
        """Return the budget for a worker that this operation starts, or None if nothing is limited.

        For each limit, the worker gets the amount in its own budget, up to the remaining amount. If its budget
        does not set the limit, the worker gets a share of the remaining amount. The limit on changed files is not
        divided: the worker gets all that remains of it. Raise AgentFailed if any other limit is used up.
        """
        granted_limits: dict[str, Any] = {}
        for name, left in self._remaining_limits().items():
            wanted = None if own is None else getattr(own, name)
            granted = min(left, left * share if wanted is None else wanted)
            granted_limits[name] = granted if name == "usd" else min(int(left), max(1, int(granted)))
            if granted_limits[name] <= 0:
                message = f"no budget left for a worker: {left:,.6g} {LIMIT_UNITS[name]} remaining"
                raise AgentFailed(Failure(kind="budget", agent=agent, message=message))
        if (files := self._remaining_files()) is not None:
            granted_limits["files_changed"] = files
        return Budget(**granted_limits) if granted_limits else None

    def _remaining_limits(self) -> dict[str, float]:
        """Return the remaining amount of each limit at this level or above, excluding reserved amounts.

        If several levels set the same limit, the smallest remaining amount is returned.
        """
        left: dict[str, float] = {}
        for one in self._limited_levels:
            for limit, used, kept, name in one._iter_limits():
                if limit is not None:
                    left[name] = min(left.get(name, inf), limit - used - kept)
        return left

    def _remaining_files(self) -> int | None:
        """Return how many more files can be changed, or None if there is no limit.

        Only files that have been changed count: unlike tokens and cost, files are not reserved in advance.
        """
        limits = [(one, one.budget.files_changed) for one in self._levels if one.budget is not None]
        index = self.timeline.index
        left = [most - len(index.files_changed_below(one.path)) for one, most in limits if most is not None]
        return max(0, min(left)) if left else None

    def require_file_budget(self, files: set[str], *, agent: str) -> None:
        """Raise AgentFailed if changing these files would exceed a limit on changed files."""
        for limit in self._levels:
            most = None if limit.budget is None else limit.budget.files_changed
            if most is None:
                continue
            changed = limit.timeline.index.files_changed_below(limit.path) | files
            if len(changed) > most:
                message = (
                    f"{limit._owner_label} budget of {most} changed files would be exceeded: with this change, "
                    f"{len(changed)} files would have been changed"
                )
                raise AgentFailed(Failure(kind="budget", agent=agent, message=message))

    @property
    def _levels(self) -> tuple[Allowance, ...]:
        """This allowance and all allowances above it; the run's allowance is last."""
        return (self, *self._above)

    @property
    def _limited_levels(self) -> list[Allowance]:
        """This allowance and all allowances above it, except those without a budget."""
        return [level for level in self._levels if level.budget is not None]

    def _announce_release(self) -> None:
        """Wake all calls that are waiting for budget. Calls that still do not fit go back to waiting."""
        root = self._levels[-1]
        if root._released is not None:
            root._released.set()
            root._released = None

    def _explain_exceeded_limit(self, estimate: Usage, *, alone: bool = False) -> str | None:
        """Return why a call with this estimate would exceed a limit, or None if it would not.

        With `alone`, ignore the budget reserved for running calls.
        """
        for limit, used, kept, name in self._iter_limits():
            counted = USAGE_FIELDS[name]
            coming = kept + getattr(estimate, counted) - (getattr(self._reserved, counted) if alone else 0)
            if limit is not None and used + coming > limit:
                return f"{self._describe_limit(limit, name)} is not enough for the next model call: {used:,.6g} used"
        return None

    def _describe_limit(self, limit: float, name: str) -> str:
        return f"{self._owner_label} budget of {limit:,g} {LIMIT_UNITS[name]}"

    def _iter_limits(self) -> Iterator[tuple[float | None, float, float, str]]:
        """Yield the value, the used amount, the reserved amount and the name of each kind of limit."""
        if self.budget is None:
            return
        # A rehearsal uses up its budget like a real run, so that it shows where a limit would stop the run.
        spent = self.timeline.index.usage_below(self.path).with_rehearsed()
        lent = self.timeline.index.worker_budgets_below(self.path)
        for name, counted in USAGE_FIELDS.items():
            kept = getattr(self._reserved, counted) + sum(getattr(one, name) or 0 for one in lent)
            yield getattr(self.budget, name), getattr(spent, counted), kept, name

    @property
    def _owner_label(self) -> str:
        return f"{self._owner}'s" if self._owner else "the run's"


class Reservation:
    """A context manager that reserves budget for a model call at every level.

    Entering it returns the maximum length of the reply in tokens, or None if neither tokens nor cost are limited.
    """

    __slots__ = ("_levels", "_longest_reply", "_reserved")

    def __init__(self, levels: Sequence[Allowance], reserved: Usage, *, longest_reply: int | None) -> None:
        self._levels = levels
        self._reserved = reserved
        self._longest_reply = longest_reply

    def __enter__(self) -> int | None:
        for level in self._levels:
            level._reserved = level._reserved + self._reserved
        return self._longest_reply

    def __exit__(self, *_: object) -> None:
        for level in self._levels:
            level._reserved = _subtract_usage(level._reserved, self._reserved)
        self._levels[-1]._announce_release()


def combine_strictest(budget: Budget | None, limits: Budget | None) -> Budget | None:
    """Return a budget with the smaller of the two values for each limit."""
    if budget is None or limits is None:
        return budget or limits
    both = zip(structs.astuple(budget), structs.astuple(limits), strict=True)
    least = [min((one for one in pair if one is not None), default=None) for pair in both]
    return Budget(**dict(zip(Budget.__struct_fields__, least, strict=True)))


def _subtract_usage(whole: Usage, part: Usage) -> Usage:
    if whole is part:
        return NO_USAGE
    return Usage(
        input_tokens=whole.input_tokens - part.input_tokens,
        output_tokens=whole.output_tokens - part.output_tokens,
        usd=whole.usd - part.usd,
        calls=whole.calls - part.calls,
    )
