"""Read the costs of runs: in total, by operation, over time, by agent and by model.

Every amount is a sum of the usage that entries record, so the
totals equal those of all other views.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import accumulate
from math import ceil
from threading import Lock

from msgspec import Struct, field, structs

from ...store.reader import DamagedRun, RunSummary, StoreReader
from ...values.agent import Budget
from ...values.column import Document, DocumentPart, encode_rows
from ...values.phase import Activity, Phase
from ...values.plain_text import format_count
from ...values.request import Outcome
from ...values.usage import NO_USAGE, FullUsage, Usage, sum_usage
from ...views.run_state import RunState
from ...views.run_state.activity import PERIOD_KINDS, Period, RunActivity
from ...views.run_state.model_usage import USAGE_KINDS, RunUsage, UsagePoint, usage_of_event
from ...views.run_state.tree import OperationNode, RunBudget, RunView
from .run_listing import RUN_COLUMNS, RunObject, RunRow, RunTotals, make_run_row
from .team_states import read_team_states

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


class CostList(Document, frozen=True, kw_only=True):
    """The costs of runs, individually and in total, and the runs that cannot be read."""

    runs: list[RunObject]
    usage: FullUsage
    damaged: Sequence[DamagedRun]


class CostNode(DocumentPart, frozen=True, kw_only=True):
    """An operation with its own usage, and its total usage, which includes that of the operations below it."""

    path: str
    agent: str
    trigger: str
    engine: str
    outcome: Outcome | None
    own: FullUsage
    total: FullUsage
    children: list[CostNode]


class CostTree(Document, frozen=True, kw_only=True):
    """The costs of one run by operation."""

    run: str
    state: Phase
    agent: str
    started_at: float
    usage: FullUsage
    tree: CostNode | None


MOST_BUCKETS = 96
MOST_SERIES = 8
"""The number of agents that get their own series. If two or more agents remain, they share one more series.

A single remaining agent gets its own series, because it has no other agent to share one with.
"""
RATE_SECONDS = 600.0
"""The length of the recent period used to predict when a budget will be exhausted."""
SMALLEST_PERIOD = 1.0


class AgentCost(DocumentPart, frozen=True, kw_only=True):
    """The usage of one agent, and a breakdown of its time."""

    name: str
    usage: FullUsage
    time: TimeSplit


class ModelCost(DocumentPart, frozen=True, kw_only=True):
    """The usage of one model."""

    name: str
    usage: FullUsage


class CostSeries(Struct, frozen=True, kw_only=True):
    """The running totals of one agent, or of several, at the times of a cost curve."""

    name: str
    money: list[float]
    tokens: list[int]
    rehearsed: list[int]

    @classmethod
    def of(cls, name: str, usages: Iterable[Usage]) -> CostSeries:
        """Return the running totals of usages, one for each time."""
        totals = list(accumulate(usages))
        return cls(
            name=name,
            money=[one.usd for one in totals],
            tokens=[one.tokens for one in totals],
            rehearsed=[one.rehearsed_input_tokens + one.rehearsed_output_tokens for one in totals],
        )


class CostCurve(Struct, frozen=True, kw_only=True):
    """Running totals at equal intervals, one series for each agent."""

    times: list[float] = []
    series: list[CostSeries] = []


class CostOverview(Document, frozen=True, kw_only=True):
    """The costs of runs by agent and by model, over time and in total.

    `wall` breaks down the time of the runs, and `exhausted_at` is when their budget will be used up at the recent rate.
    """

    usage: FullUsage
    agents: list[AgentCost]
    models: list[ModelCost]
    wall: TimeSplit
    history: CostCurve
    budget: Budget
    exhausted_at: float | None


class RunCostOverview(CostOverview, frozen=True, kw_only=True):
    """The costs of one run and its workers. `wall` is the time of the run itself."""

    run: RunObject


class StoreCostOverview(CostOverview, frozen=True, kw_only=True):
    """The costs of all runs, individually and together, and the runs that cannot be read."""

    runs: list[RunObject]
    damaged: Sequence[DamagedRun]


class CostHistoryReader:
    """Reads cost histories from a store. The histories of ended runs are cached, because they never change."""

    def __init__(self) -> None:
        self._ended: dict[str, CostHistory] = {}
        self._lock = Lock()

    def read(self, reader: StoreReader, summary: RunSummary, *, now: float) -> CostHistory:
        """Return the history of a run up to now. Several threads can call this."""
        with self._lock:
            found = self._ended.get(summary.id)
        if found is not None:
            return found
        state = CostState.from_entries(reader.read_entries(summary.id, kinds=CostState.KINDS))
        found = state.build_history(now=now if summary.phase == "running" else None)
        if summary.is_over:
            with self._lock:
                self._ended[summary.id] = found
        return found

    def read_with_workers(
        self, reader: StoreReader, summary: RunSummary, *, now: float
    ) -> tuple[CostHistory, list[CostHistory]]:
        """Return the history of a run, and the histories of its workers, including workers that its workers started.

        In a worker's history, the worker's name is appended to the names of agents.
        """
        summaries: dict[str, RunSummary] = {}

        def read(run: str) -> CostHistory:
            summaries[run] = reader.read_summary(run)
            return self.read(reader, summaries[run], now=now)

        states = read_team_states(summary.id, read, includes=reader.has_run)
        own = states.pop(summary.id)
        return own, [_rename_agents(found, summaries[run]) for run, found in states.items()]


def _rename_agents(history: CostHistory, summary: RunSummary) -> CostHistory:
    started = summary.started
    task = started.errand
    suffix = f" on {task.worker_name}" if task is not None else ""
    return structs.replace(
        history,
        points=tuple(structs.replace(one, agent=f"{one.agent}{suffix}") for one in history.points),
        agents={f"{name}{suffix}": spent for name, spent in history.agents.items()},
    )


def build_cost_overview(
    histories: Sequence[CostHistory], *, budget: Budget | None = None, is_active: bool = False
) -> CostOverview:
    """Return the costs of runs by agent and by model, over time and in total.

    `budget` is the limit for all runs together, and `is_active` says whether the runs can still use it.
    """
    points = sorted((one for history in histories for one in history.points), key=lambda one: one.at)
    agents = _sum_by_agent(histories)
    models: dict[str, Usage] = {}
    for history in histories:
        for name, usage in history.models.items():
            models[name] = models.get(name, NO_USAGE) + usage
    until = max((one.until for one in histories), default=0.0)
    total = sum_usage(one.usage for one in points)
    return CostOverview(
        usage=FullUsage.of(total),
        agents=agents,
        models=[ModelCost(name=name, usage=FullUsage.of(usage)) for name, usage in models.items()],
        wall=sum((one.wall for one in histories), TimeSplit()),
        history=_build_curve(points, [one.name for one in agents], until=until),
        budget=budget or Budget(),
        exhausted_at=project_exhaustion(points, total, budget, now=until) if budget and is_active else None,
    )


def _sum_by_agent(histories: Iterable[CostHistory]) -> list[AgentCost]:
    """Return the usage and the time of each agent, most expensive first."""
    usages: dict[str, Usage] = {}
    times: dict[str, TimeSplit] = {}
    for history in histories:
        for point in history.points:
            usages[point.agent] = usages.get(point.agent, NO_USAGE) + point.usage
        for name, spent in history.agents.items():
            times[name] = times.get(name, TimeSplit()) + spent
    found = [
        AgentCost(name=name, usage=FullUsage.of(usages.get(name, NO_USAGE)), time=times.get(name, TimeSplit()))
        for name in usages | times
    ]
    return sorted(found, key=lambda one: (one.usage.usd, one.usage.with_rehearsed().tokens), reverse=True)


def _build_curve(points: Sequence[UsagePoint], agents: Sequence[str], *, until: float) -> CostCurve:
    """Return running totals, one series for each agent. If there are many agents, the cheapest share one series."""
    if not points:
        return CostCurve()
    first, last = points[0].at, max(until, points[-1].at, points[0].at + SMALLEST_PERIOD)
    width = (last - first) / MOST_BUCKETS
    times = [first + width * number for number in range(MOST_BUCKETS + 1)]
    most = MOST_SERIES if len(agents) > MOST_SERIES + 1 else len(agents)
    drawn = {name: min(place, most) for place, name in enumerate(agents)}
    names = list(agents[:most])
    if len(agents) > most:
        names.append(format_count(len(agents) - most, "other agent"))
    steps = [[NO_USAGE] * len(times) for _ in names]
    for point in points:
        bucket = min(MOST_BUCKETS, ceil((point.at - first) / width))
        row = steps[drawn[point.agent]]
        row[bucket] = row[bucket] + point.usage
    return CostCurve(times=times, series=[CostSeries.of(name, row) for name, row in zip(names, steps, strict=True)])


def project_exhaustion(points: Sequence[UsagePoint], total: Usage, budget: Budget, *, now: float) -> float | None:
    """Return when the budget's money or tokens will be used up at the recent rate, or None if that is unknown."""
    recent = [one for one in points if one.at >= now - RATE_SECONDS] or list(points)
    if not recent:
        return None
    seconds = max(now - recent[0].at, SMALLEST_PERIOD)
    spent = sum_usage(one.usage for one in recent)
    limits = ((budget.usd, total.usd, spent.usd), (budget.tokens, total.tokens, spent.tokens))
    times = [
        now + max(0.0, limit - used) * seconds / rate for limit, used, rate in limits if limit is not None and rate > 0
    ]
    return min(times, default=None)


def list_costs(runs: Sequence[RunRow], damaged: Sequence[DamagedRun] = ()) -> CostList:
    """Return the costs of runs, individually and in total."""
    total = FullUsage.of(sum_usage(run.usage for run in runs))
    return CostList(runs=encode_rows(runs, RUN_COLUMNS), usage=total, damaged=damaged)


def build_cost_tree(run_view: RunView, *, state: Phase, now: float) -> CostTree:
    """Return the costs of one run by operation."""
    started = run_view.started
    assert started is not None
    usage = structs.replace(run_view.usage, seconds=now - run_view.started_at)
    tree = None if run_view.root is None else _build_cost_node(run_view.root, now)
    return CostTree.of(run_view, state=state, agent=started.agent, usage=usage, tree=tree)


def _build_cost_node(node: OperationNode, now: float) -> CostNode:
    children = [_build_cost_node(child, now) for child in node.children]
    return CostNode.of(node, own=node.own_usage, total=node_usage(node, now), children=children)


def make_cost_row(summary: RunSummary, usages: Iterable[Usage], *, now: float) -> RunRow:
    """Return a run as a row with the sum of these usages, with `seconds` set to the run's duration."""
    row = make_run_row(summary, now=now)
    usage = structs.replace(sum_usage(usages), seconds=row.seconds)
    return structs.replace(row, totals=RunTotals(usage=usage))


def read_run_cost(reader: StoreReader, summary: RunSummary, *, now: float) -> RunRow:
    """Return a run with its usage, excluding that of its workers. Only the entries that record usage are decoded.

    Entries that a fork shares with another run count only in that run.
    """
    entries = reader.read_entries(summary.id, summary.first.seq + summary.started.shared, kinds=tuple(USAGE_KINDS))
    return make_cost_row(summary, (usage_of_event(entry.event) for entry in entries), now=now)


def node_usage(node: OperationNode, now: float) -> Usage:
    """Return the usage of an operation and of all operations below it."""
    return structs.replace(node.usage, seconds=(now if node.ended is None else node.ended) - node.started)


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
