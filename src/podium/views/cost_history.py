"""Compute a run's costs, and how each agent spent its time, from the run's timeline.

Costs are computed over time, by agent and by model. Every amount is a sum of the usage that entries record, so the
totals equal those of all other views.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
from msgspec import Struct, structs

from ..values.agent import Budget
from ..values.event import (
    KINDS,
    BudgetChanged,
    Entry,
    OperationEnded,
    OperationStarted,
    PermissionAnswered,
    PermissionAsked,
    QuestionAnswered,
    QuestionAsked,
    RunEnded,
    RunPaused,
    RunResumed,
    RunStarted,
    ToolAnswered,
    ToolCalled,
    TurnEnded,
    TurnResumed,
    TurnStarted,
    WorkerSent,
)
from ..values.phase import Activity
from ..values.usage import NO_USAGE, Usage
from .phase import OngoingWork
from .run_view import USAGE_KINDS, usage_of_event

ACTIVITIES: Sequence[Activity] = ("thinking", "tool", "waiting", "workers", "idle", "starting")
"""The activities by precedence: if agents do different things at once, the run's time counts as the first of these."""
OTHER: Sequence[Activity] = ("workers", "idle", "starting")
"""The activities whose time is reported as `other`."""

HISTORY_KINDS = (
    *USAGE_KINDS,
    *(
        KINDS[event]
        for event in (
            RunStarted,
            RunPaused,
            RunResumed,
            RunEnded,
            BudgetChanged,
            OperationStarted,
            OperationEnded,
            TurnStarted,
            TurnResumed,
            TurnEnded,
            ToolCalled,
            ToolAnswered,
            PermissionAsked,
            PermissionAnswered,
            QuestionAsked,
            QuestionAnswered,
            WorkerSent,
        )
    ),
)
"""The kinds of entries that change a cost history. Entries of other kinds, such as streamed text, can be skipped."""
UNKNOWN_MODEL = "unknown"


_Seconds = defaultdict[Activity, float]


class UsagePoint(NamedTuple):
    """The usage of one model call."""

    at: float
    agent: str
    usage: Usage


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


@dataclass(slots=True)
class _OpenOperation:
    agent: str
    since: float
    activity: Activity = "starting"
    work: OngoingWork = field(default_factory=OngoingWork)


class CostHistoryBuilder:
    """Builds the cost history of a run from its entries. Entries of kinds not in `HISTORY_KINDS` have no effect."""

    def __init__(self) -> None:
        self._points: list[UsagePoint] = []
        self._models: dict[str, Usage] = {}
        self._budget = Budget()
        self._workers: list[str] = []
        self._open: dict[str, _OpenOperation] = {}
        self._agents: dict[str, str] = {}
        self._asked: dict[str, str] = {}
        """The operations whose agents have asked, keyed by the ids of their requests."""
        self._active: Counter[Activity] = Counter()
        self._wall: _Seconds = defaultdict(float)
        self._by_agent: defaultdict[str, _Seconds] = defaultdict(_make_seconds)
        self._started_at = self._at = 0.0
        self._shared = 0

    def apply(self, entry: Entry) -> None:
        """Apply the next entry."""
        if isinstance(entry.event, RunResumed):
            self._stop_work(self._at)  # the time since the previous process's last entry does not count as work
        self._advance(entry.at)
        match entry.event:
            case RunStarted() as event:
                self._started_at, self._shared = entry.at, event.shared
                self._budget = msgspec.convert(event.settings.get("budget") or {}, Budget)
            case BudgetChanged(budget=budget):
                changed = {name: value for name, value in structs.asdict(budget).items() if value is not None}
                self._budget = structs.replace(self._budget, **changed)
            case WorkerSent(run=run):
                self._workers.append(run)
            case RunPaused():
                self._stop_work(entry.at)
            case RunEnded():
                self._close("", entry.at)
            case OperationStarted(agent=agent):
                self._agents[entry.operation] = agent
                opened = self._open[entry.operation] = _OpenOperation(agent, entry.at)
                self._active[opened.activity] += 1
            case OperationEnded():
                self._close(entry.operation, entry.at)
            case PermissionAsked(id=id) | QuestionAsked(id=id):
                self._asked[id] = entry.operation
                self._apply_to_operation(entry.operation, entry)
            case PermissionAnswered(id=id) | QuestionAnswered(id=id):
                self._apply_to_operation(self._asked.pop(id, ""), entry)
            case _:
                self._apply_to_operation(entry.operation, entry)
        self._count_usage(entry)

    def _apply_to_operation(self, path: str, entry: Entry) -> None:
        if (operation := self._open.get(path)) is not None:
            operation.work.apply(entry)
            self._settle(operation, entry.at)

    def _count_usage(self, entry: Entry) -> None:
        usage = usage_of_event(entry.event)
        # Entries that a fork shares with another run are counted in that run.
        if usage == NO_USAGE or entry.seq <= 1 + self._shared:
            return
        self._points.append(UsagePoint(entry.at, self._agents.get(entry.operation, ""), usage))
        model = getattr(entry.event, "model", "") or UNKNOWN_MODEL
        self._models[model] = self._models.get(model, NO_USAGE) + usage

    def _advance(self, at: float) -> None:
        if self._at:
            self._wall[self._first_activity] += max(0.0, at - self._at)
        self._at = at

    @property
    def _first_activity(self) -> Activity:
        return next((one for one in ACTIVITIES if self._active[one]), ACTIVITIES[-1])

    def _settle(self, operation: _OpenOperation, at: float) -> None:
        now = operation.work.derive_activity()
        if now == operation.activity:
            return
        self._by_agent[operation.agent][operation.activity] += max(0.0, at - operation.since)
        self._active[operation.activity] -= 1
        self._active[now] += 1
        operation.activity, operation.since = now, at

    def _close(self, path: str, at: float) -> None:
        for key in [key for key in self._open if not path or key == path or key.startswith(f"{path}/")]:
            operation = self._open.pop(key)
            self._by_agent[operation.agent][operation.activity] += max(0.0, at - operation.since)
            self._active[operation.activity] -= 1

    def _stop_work(self, at: float) -> None:
        """End all turns and tool calls, because the run is paused or its process died. Requests stay open."""
        for operation in self._open.values():
            operation.work.interrupt()
            self._settle(operation, at)

    def build(self, *, now: float | None = None) -> CostHistory:
        """Return the history up to the last entry or, if the run is active, up to `now`."""
        until = self._at if now is None else max(now, self._at)
        wall, by_agent = self._wall.copy(), {name: spent.copy() for name, spent in self._by_agent.items()}
        wall[self._first_activity] += until - self._at
        for operation in self._open.values():
            spent = by_agent.setdefault(operation.agent, _make_seconds())
            spent[operation.activity] += max(0.0, until - operation.since)
        return CostHistory(
            started_at=self._started_at,
            until=until,
            points=tuple(self._points),
            models=dict(self._models),
            wall=_to_time_split(wall),
            agents={name: _to_time_split(spent) for name, spent in by_agent.items()},
            budget=self._budget,
            workers=tuple(self._workers),
        )


def _make_seconds() -> _Seconds:
    return defaultdict(float)


def _to_time_split(seconds: _Seconds) -> TimeSplit:
    other = sum(seconds.get(one, 0.0) for one in OTHER)
    return TimeSplit(thinking=seconds["thinking"], tool=seconds["tool"], waiting=seconds["waiting"], other=other)
