"""Compute a run's costs, and how each agent spent its time, from the run's timeline.

Costs are computed over time, by agent and by model. Every amount is a sum of the usage that entries record, so the
totals equal those of all other views.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from msgspec import Struct

from ..core.budget import override_limits
from ..values.agent import Budget
from ..values.event import KINDS, BudgetChanged, Entry, RunStarted
from ..values.phase import Activity
from ..values.usage import Usage
from .run_activity import PERIOD_KINDS, Period, RunActivity
from .run_usage import RunUsage, UsagePoint
from .run_view import read_budget

ACTIVITIES: Sequence[Activity] = ("thinking", "tool", "waiting", "workers", "idle", "starting")
"""The activities by precedence: if agents do different things at once, the run's time counts as the first of these."""
OTHER: Sequence[Activity] = ("workers", "idle", "starting")
"""The activities whose time is reported as `other`."""

HISTORY_KINDS = (*RunUsage.KINDS, *PERIOD_KINDS, KINDS[BudgetChanged])
"""The kinds of entries that change a cost history. Entries of other kinds, such as streamed text, can be skipped."""


_Seconds = defaultdict[Activity, float]


class TimeSplit(Struct, frozen=True, kw_only=True):
    """Seconds by activity."""

    thinking: float = 0.0
    tool: float = 0.0
    waiting: float = 0.0
    other: float = 0.0

    def __add__(self, more: TimeSplit) -> TimeSplit:
        return TimeSplit(**{name: getattr(self, name) + getattr(more, name) for name in self.__struct_fields__})


class CostHistory(Struct, frozen=True, kw_only=True):
    """The costs of one run over time. `wall` breaks down the time from `started_at` to `until` by activity."""

    started_at: float
    until: float
    points: tuple[UsagePoint, ...] = ()
    models: dict[str, Usage] = {}
    wall: TimeSplit = TimeSplit()
    agents: dict[str, TimeSplit] = {}
    budget: Budget = Budget()
    workers: tuple[str, ...] = ()
    """The runs of the workers that the run started. Their usage is in their own histories."""


class CostHistoryBuilder:
    """Builds the cost history of a run from its entries. Entries of kinds not in `HISTORY_KINDS` have no effect."""

    def __init__(self) -> None:
        self._usage = RunUsage()
        self._activity = RunActivity()
        self._budget: Budget | None = None
        self._started_at = 0.0

    def apply(self, entry: Entry) -> None:
        """Apply the next entry."""
        self._activity.apply(entry)
        self._usage.apply(entry)
        match entry.event:
            case RunStarted(settings=settings):
                self._started_at = entry.at
                self._budget = read_budget(settings)
            case BudgetChanged(budget=limits):
                self._budget = override_limits(self._budget, limits)

    def build(self, *, now: float | None = None) -> CostHistory:
        """Return the history up to the last entry or, if the run is active, up to `now`."""
        until = self._activity.at if now is None else max(now, self._activity.at)
        periods = list(self._activity.iter_periods(until))
        agents: dict[str, _Seconds] = {}
        for agent, activity, start, end in periods:
            agents.setdefault(agent, defaultdict(float))[activity] += max(0.0, end - start)
        return CostHistory(
            started_at=self._started_at,
            until=until,
            points=tuple(self._usage.points),
            models=dict(self._usage.models),
            wall=_to_time_split(_measure_wall(periods, self._started_at, until)),
            agents={name: _to_time_split(spent) for name, spent in agents.items()},
            budget=self._budget or Budget(),
            workers=tuple(worker.run for worker in self._activity.workers),
        )


def _measure_wall(periods: Iterable[Period], since: float, until: float) -> _Seconds:
    """Return the seconds in which each activity was the first in `ACTIVITIES` that any agent was doing."""
    changes = sorted(
        change
        for _, activity, start, end in periods
        for change in ((start, 1, activity), (max(start, end), -1, activity))
    )
    wall: _Seconds = defaultdict(float)
    active: Counter[Activity] = Counter()
    for at, number, activity in [*changes, (until, 0, ACTIVITIES[-1])]:
        wall[next((one for one in ACTIVITIES if active[one]), ACTIVITIES[-1])] += max(0.0, at - since)
        since = max(since, at)
        active[activity] += number
    return wall


def _to_time_split(seconds: _Seconds) -> TimeSplit:
    other = sum(seconds.get(one, 0.0) for one in OTHER)
    return TimeSplit(thinking=seconds["thinking"], tool=seconds["tool"], waiting=seconds["waiting"], other=other)
