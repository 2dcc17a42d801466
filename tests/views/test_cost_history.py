"""The costs of a run over time, and how its time was spent."""

from __future__ import annotations

from podium.runs.queries.cost_overview import CostHistory, CostState, TimeSplit, build_cost_overview, project_exhaustion
from podium.values.action import Action
from podium.values.agent import Budget
from podium.values.event import (
    BudgetChanged,
    Entry,
    Event,
    ModelReplied,
    OperationEnded,
    OperationStarted,
    PermissionAnswered,
    PermissionAsked,
    RunEnded,
    RunResumed,
    RunStarted,
    ToolAnswered,
    ToolCalled,
    TurnEnded,
    TurnStarted,
)
from podium.values.request import Request
from podium.values.usage import Usage

ACTION = Action(run="r", agent="lead", tool="bash", arguments={}, directory="/")
TURN = TurnStarted(agent="lead", engine="x", prompt="go")


def build_history(*timed: tuple[float, str, Event], now: float | None = None) -> CostHistory:
    state = CostState()
    for number, (at, operation, event) in enumerate(timed, 1):
        state.apply(Entry(run="r", seq=number, at=at, scope=operation, operation=operation, event=event))
    return state.build_history(now=now)


def start(**settings: object) -> tuple[float, str, Event]:
    return (100.0, "", RunStarted(agent="lead", request=Request(text="go"), settings=dict(settings)))


def begin(at: float, path: str) -> tuple[float, str, Event]:
    return (at, path, OperationStarted(agent=path.rpartition("/")[2], trigger="member", request=Request(text="go")))


def reply(at: float, path: str, usd: float) -> tuple[float, str, Event]:
    return (at, path, ModelReplied(model="m", usage=Usage(calls=1, usd=usd, input_tokens=10)))


def test_every_second_of_a_run_is_thinking_tool_waiting_or_other() -> None:
    asked = PermissionAsked(id="p", action=ACTION, reason="no rule")
    history = build_history(
        start(),
        begin(101, "lead"),
        (102, "lead", TURN),
        (106, "lead", ToolCalled(id="t", action=ACTION)),
        (107, "lead", asked),
        (127, "", PermissionAnswered(id="p", decision="once", by="ada")),
        (130, "lead", ToolAnswered(id="t", text="ok")),
        (131, "lead", TurnEnded(outcome="succeeded")),
        (132, "lead", OperationEnded(outcome="succeeded")),
        (134, "", RunEnded(outcome="succeeded")),
    )

    assert history.wall == TimeSplit(thinking=5, tool=4, waiting=20, other=5)
    assert history.agents["lead"] == TimeSplit(thinking=5, tool=4, waiting=20, other=2)


def test_waiting_counts_for_the_run_only_while_nobody_else_works() -> None:
    asked = PermissionAsked(id="p", action=ACTION, reason="no rule")
    history = build_history(
        start(), begin(100, "a"), begin(100, "b"), (100, "a", TURN), (100, "b", TURN), (100, "b", asked),
        (110, "a", TurnEnded(outcome="succeeded")), now=115,
    )  # fmt: skip

    assert history.wall == TimeSplit(thinking=10, waiting=5)
    assert history.agents == {"a": TimeSplit(thinking=10, other=5), "b": TimeSplit(waiting=15)}


def test_an_answer_after_its_agent_has_ended_changes_nothing() -> None:
    asked = PermissionAsked(id="p", action=ACTION, reason="no rule")
    history = build_history(
        start(), begin(100, "a"), begin(100, "b"), (100, "a", TURN), (100, "b", TURN), (100, "b", asked),
        (110, "b", OperationEnded(outcome="cancelled")), (112, "", PermissionAnswered(id="p", decision="once")),
        (115, "a", TurnEnded(outcome="succeeded")), now=120,
    )  # fmt: skip

    assert history.wall == TimeSplit(thinking=15, other=5)
    assert history.agents == {"a": TimeSplit(thinking=15, other=5), "b": TimeSplit(waiting=10)}


def test_a_tool_that_never_answered_ends_with_its_turn() -> None:
    history = build_history(
        start(), begin(100, "a"), (100, "a", TURN), (102, "a", ToolCalled(id="t", action=ACTION)),
        (105, "a", TurnEnded(outcome="failed")), now=110,
    )  # fmt: skip

    assert history.wall == TimeSplit(thinking=2, tool=3, other=5)


def test_the_time_between_two_processes_is_no_work() -> None:
    history = build_history(
        start(), begin(100, "lead"), (100, "lead", TURN), reply(110, "lead", 1), (500, "", RunResumed(host="h", pid=1))
    )

    assert history.wall == TimeSplit(thinking=10, other=390)


def test_costs_are_summed_by_agent_and_model_and_the_last_totals_equal_the_sums() -> None:
    history = build_history(
        start(budget={"usd": 2.0}), begin(100, "lead"), begin(100, "lead/a"), reply(101, "lead", 0.1),
        reply(150, "lead/a", 0.2), reply(200, "lead/a", 0.3), (201, "", BudgetChanged(budget=Budget(usd=3.0))),
    )  # fmt: skip
    overview = build_cost_overview([history])

    assert [(one.name, round(one.usage.usd, 6)) for one in overview.agents] == [("a", 0.5), ("lead", 0.1)]
    assert {one.name: round(one.money[-1], 6) for one in overview.history.series} == {"a": 0.5, "lead": 0.1}
    assert round(overview.models[0].usage.usd, 6) == 0.6
    assert history.budget == Budget(usd=3.0)
    for series in overview.history.series:
        assert series.money == sorted(series.money)


def test_many_agents_share_one_series_and_nothing_is_lost() -> None:
    entries = [(start())]
    for number in range(20):
        entries += [begin(100, f"a{number}"), reply(101 + number, f"a{number}", 0.01 * (number + 1))]
    overview = build_cost_overview([build_history(*entries)])

    assert overview.history.series[-1].name == "12 other agents"
    assert round(sum(one.money[-1] for one in overview.history.series), 6) == round(overview.usage.usd, 6)


def test_a_budget_is_projected_from_the_last_minutes() -> None:
    history = build_history(start(), begin(100, "lead"), *(reply(100 + 10 * step, "lead", 0.1) for step in range(11)))
    total = Usage(usd=1.1, input_tokens=110)

    assert project_exhaustion(history.points, total, Budget(usd=2.2), now=200) == 300
    assert project_exhaustion(history.points, total, Budget(tokens=110), now=200) == 200
    assert project_exhaustion(history.points, total, Budget(seconds=5), now=200) is None
    assert project_exhaustion((), Usage(), Budget(usd=1), now=200) is None
