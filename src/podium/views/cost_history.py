"""Compute a run's costs, and how each agent spent its time, from the run's timeline.

Costs are computed over time, by agent and by model. Every amount is a sum of the usage that entries record, so the
totals equal those of all other views.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from msgspec import Struct, field

from ..values.agent import Budget
from ..values.phase import Activity
from ..values.usage import Usage
from .run_state import RunState
from .run_state.activity import PERIOD_KINDS, Period, RunActivity
from .run_state.model_usage import RunUsage, UsagePoint
from .run_state.tree import RunBudget

ACTIVITIES: Sequence[Activity] = ("thinking", "tool", "waiting", "workers", "idle", "starting")
"""The activities by precedence: if agents do different things at once, the run's time counts as the first of these."""
OTHER: Sequence[Activity] = ("workers", "idle", "starting")
"""The activities whose time is reported as `other`."""

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
    worker_runs: tuple[str, ...] = ()
    """The runs of the workers that the run started. Their usage is in their own histories."""


class CostState(RunState):
    """The parts of a run's state that its cost history needs."""

    KINDS = (*RunUsage.KINDS, *PERIOD_KINDS, *RunBudget.KINDS)

    activity: RunActivity = field(default_factory=RunActivity)
    usage: RunUsage = field(default_factory=RunUsage)
    budget: RunBudget = field(default_factory=RunBudget)

    def build_history(self, *, now: float | None = None) -> CostHistory:
        """Return the history up to the last entry or, if the run is active, up to `now`."""
        until = self.activity.at if now is None else max(now, self.activity.at)
        periods = list(self.activity.iter_periods(until))
        agents: dict[str, _Seconds] = {}
        for agent, activity, start, end in periods:
            agents.setdefault(agent, defaultdict(float))[activity] += max(0.0, end - start)
        return CostHistory(
            started_at=self.usage.started_at,
            until=until,
            points=tuple(self.usage.points),
            models=dict(self.usage.models),
            wall=_to_time_split(_measure_wall(periods, self.usage.started_at, until)),
            agents={name: _to_time_split(spent) for name, spent in agents.items()},
            budget=self.budget.current or Budget(),
            worker_runs=tuple(worker.run for worker in self.activity.workers),
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
