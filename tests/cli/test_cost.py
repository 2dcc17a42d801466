from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Callable
from typing import Any

import pytest

from podium.cli.commands.cost import Column, TreeLabel, build_usage_columns, format_cost, format_usage_table
from podium.cli.output.text import display_width
from podium.values.usage import Usage

from .conftest import Desk
from .test_terminal import Terminal


def make_usage_move(input: int, output: int, **more: Any) -> dict[str, Any]:
    """Return a script step that uses this many tokens."""
    return {"says": "some words", "usage": {"input_tokens": input, "output_tokens": output, **more}}


@pytest.fixture
def team(desk: Desk) -> Desk:
    """Make a run with two advisors, one of them a router, and a handoff."""
    desk.write_agent(
        "lead", make_usage_move(1000, 100, cached_tokens=400, usd=0.01), advisors=["law", "desk"], handoff="last"
    )
    desk.write_agent("law", make_usage_move(2000, 200, usd=0.02))
    desk.write_agent(
        "desk",
        {"calls": [{"name": "route_to", "arguments": {"agent": "ops"}}], "usage": {"input_tokens": 5, "usd": 0.0004}},
        agents=["ops"],
        router=True,
    )
    desk.write_agent("ops", make_usage_move(30, 3, unpriced=1))
    desk.write_agent("last", make_usage_move(4000, 400, estimated=1, usd=0.04))
    desk.invoke("run", "lead", "do it")
    return desk


def test_a_run_that_cannot_be_read_does_not_hide_the_others(team: Desk) -> None:
    damaged = team.run_id()
    connection = sqlite3.connect(team.store)
    connection.execute("DROP TRIGGER entry_stays")
    connection.execute("UPDATE entry SET line = x'7b' WHERE kind = 'model_replied'")
    connection.commit()
    connection.close()
    team.invoke("run", "law", "do it")

    table, encoded = team.invoke("cost"), team.invoke("cost", "--json")

    assert "total of 1 run" in table.stdout
    assert f"run {damaged} is not counted: " in table.stderr
    answer = json.loads(encoded.stdout)
    assert ([one["agent"] for one in answer["runs"]], [one["id"] for one in answer["damaged"]]) == (["law"], [damaged])
    assert (table.exit_code, encoded.exit_code) == (8, 8)


def test_the_width_of_a_column_is_computed_once() -> None:
    usages = [Usage(calls=1, input_tokens=1000 + number, output_tokens=10, usd=0.5) for number in range(10_000)]
    names = [TreeLabel(f"{number:012x}", "") for number in range(10_000)]
    begun = time.process_time()

    lines = format_usage_table("RUN", names, build_usage_columns(usages), most=100)

    assert len(lines) == 10_001
    assert len({display_width(line) for line in lines}) == 1
    assert time.process_time() - begun < 5  # a width for each cell takes minutes


def normalize_row(line: str) -> str:
    """Return the fields of a line without the time."""
    return " ".join(re.sub(r" [\d.]+s(?= |$)", "", line).split())


def test_every_operation_shows_its_total_and_those_above_others_also_their_own(team: Desk) -> None:
    lines = team.invoke("cost", team.run_id()).stdout.splitlines()

    assert lines[0].split() == ["AGENT", "CALLS", "IN", "OUT", "CACHED", "COST", "TOOK"]
    assert [normalize_row(line) for line in lines[1:]] == [
        "lead 5 ~7,035 ~703 ~400 ~$0.0704 + unpriced",
        "│ own 1 1,000 100 400 $0.0100",
        "├─ law 1 2,000 200 $0.0200",
        "├─ desk 2 35 3 $0.0004 + unpriced",
        "│ │ own 1 5 $0.0004",
        "│ └─ ops 1 30 3 unpriced",
        "└─ last 1 ~4,000 ~400 ~$0.0400",
    ]


def list_nodes(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [node, *(below for child in node["children"] for below in list_nodes(child))]


@pytest.mark.parametrize("amount", ["calls", "input_tokens", "output_tokens", "cached_tokens", "usd", "unpriced"])
def test_what_is_used_is_counted_once(team: Desk, amount: str) -> None:
    told = json.loads(team.invoke("cost", team.run_id()[:6], "--json").stdout)
    listed = json.loads(team.invoke("cost", "--json").stdout)

    own = sum(node["own"][amount] for node in list_nodes(told["tree"]))
    assert told["usage"][amount] == told["tree"]["total"][amount] == pytest.approx(own)
    assert listed["usage"][amount] == listed["runs"][0]["usage"][amount] == pytest.approx(own)


def test_time_is_the_span_and_no_sum(team: Desk) -> None:
    told = json.loads(team.invoke("cost", team.run_id(), "--json").stdout)

    whole = told["tree"]["total"]["seconds"]

    assert 0 < whole <= told["usage"]["seconds"]
    assert all(node["total"]["seconds"] <= whole for node in list_nodes(told["tree"]))


def test_all_runs_are_listed_with_their_sum(team: Desk) -> None:
    team.write_agent("local", make_usage_move(1, 2))
    team.invoke("run", "local", "do it")
    newest, oldest = (summary.id for summary in team.runs())

    lines = team.invoke("cost").stdout.splitlines()

    assert lines[0].split() == ["RUN", "STARTED", "CALLS", "IN", "OUT", "CACHED", "COST", "TOOK", "AGENT"]
    assert (lines[1].split()[0], lines[1].split()[-1]) == (newest, "local")
    assert (lines[2].split()[0], lines[2].split()[-1]) == (oldest, "lead")
    assert normalize_row(lines[3]) == "total of 2 runs 6 ~7,036 ~705 ~400 ~$0.0704 + unpriced"
    assert max(map(display_width, lines)) <= 100


def test_without_any_runs_it_says_so_and_makes_nothing(desk: Desk) -> None:
    said = desk.invoke("cost")

    assert (said.exit_code, said.stdout) == (0, "")
    assert "no runs yet" in said.stderr
    assert json.loads(desk.invoke("cost", "--json").stdout)["runs"] == []
    assert desk.invoke("cost", "3f2a").exit_code == 2
    assert not desk.store.exists()


def test_an_interrupted_run_shows_its_cost_so_far(desk: Desk, make_interrupted_run: Callable[[], str]) -> None:
    run = make_interrupted_run()

    told = json.loads(desk.invoke("cost", run, "--json").stdout)

    assert told["state"] == "resumable"
    assert told["usage"]["calls"] == 1
    assert desk.invoke("cost", run).stdout.splitlines()[0].split()[0] == "AGENT"


@pytest.mark.parametrize(
    ("usage", "said"),
    [
        (Usage(), ""),
        (Usage(calls=1), "$0.0000"),
        (Usage(calls=1, usd=1234.5), "$1,234.5000"),
        (Usage(calls=1, usd=0.00001), "<$0.0001"),
        (Usage(calls=1, unpriced=1), "unpriced"),
        (Usage(calls=2, unpriced=1), "$0.0000 + unpriced"),
        (Usage(calls=2, unpriced=1, usd=0.5), "$0.5000 + unpriced"),
        (Usage(calls=1, estimated=1, usd=0.5), "~$0.5000"),
    ],
)
def test_costs_are_shown_as_far_as_prices_are_known(usage: Usage, said: str) -> None:
    assert format_cost(usage) == said


def test_a_narrow_terminal_keeps_names_and_money(team: Desk) -> None:
    team.write_agent("an-agent-with-a-name-that-is-as-long-as-a-line", make_usage_move(10, 2, usd=0.5))
    team.invoke("run", "an-agent-with-a-name-that-is-as-long-as-a-line", "do it")

    for columns in (40, 60, 80):
        terminal = Terminal(team, "cost", team.run_id(), columns=columns)
        assert terminal.wait_exit() == 0
        head, line, *rest = terminal.lines
        assert head.split()[0] == "AGENT"
        assert line.startswith("an-agen")
        assert "$0.5000" in line
        assert not any(rest), "nothing goes over the edge into a line of its own"


def test_the_list_of_runs_fits_a_terminal(team: Desk) -> None:
    terminal = Terminal(team, "cost", columns=60)

    assert terminal.wait_exit() == 0
    assert [line.split()[0] for line in terminal.lines if line] == ["RUN", team.run_id(), "total"]


def test_columns_give_way_before_names_vanish() -> None:
    names = [TreeLabel("", "lead"), TreeLabel("└─ ", "a-very-long-name")]
    columns = [Column("CALLS", ["1", "2"], spare=2), Column("COST", ["$1", "$2"])]

    wide, middle, narrow = (format_usage_table("AGENT", names, columns, most=most) for most in (40, 25, 18))

    assert wide[2] == "└─ a-very-long-name      2    $2"
    assert middle[2] == "└─ a-very-l…      2    $2"
    assert narrow[2].split() == ["└─", "a-very-l…", "$2"]
    assert [max(map(display_width, lines)) for lines in (wide, middle, narrow)] == [32, 25, 18]


# --- rehearsals


@pytest.fixture
def rehearsed(desk: Desk) -> Desk:
    """Make a rehearsed run of a built-in router, with three calls of which none reached a model."""
    desk.invoke("run", "broadcast-compare", "Tabs or spaces?", "--dry-run", "--quiet")
    return desk


def list_usages(fields: Any) -> list[dict[str, Any]]:
    """Return every object in JSON fields that has the fields of a usage."""
    if isinstance(fields, list):
        return [found for one in fields for found in list_usages(one)]
    if not isinstance(fields, dict):
        return []
    return [fields] if "cached_tokens" in fields else list_usages(list(fields.values()))


def test_rehearsed_calls_are_no_model_calls_and_cost_nothing(rehearsed: Desk) -> None:
    run = rehearsed.run_id()

    said = {command: rehearsed.invoke(command, run, "--json").stdout for command in ("show", "cost", "results")} | {
        "all": rehearsed.invoke("cost", "--json").stdout
    }

    for command, text in said.items():
        usages = list_usages(json.loads(text))
        assert usages, command
        for usage in usages:
            counted = ("calls", "input_tokens", "output_tokens", "usd", "unpriced", "estimated")
            assert [usage[name] for name in counted] == [0] * 6, command
        assert max(usage["rehearsed_calls"] for usage in usages) == 3, command
        assert max(usage["rehearsed_input_tokens"] for usage in usages) > 100, command


def test_rehearsed_calls_are_shown_as_such(rehearsed: Desk) -> None:
    run = rehearsed.run_id()

    shown, cost, costs, results = (
        rehearsed.invoke(*words).stdout for words in (("show", run), ("cost", run), ("cost",), ("results", run))
    )

    assert "used     3 rehearsed calls\n" in shown
    assert " tokens" not in shown
    assert [normalize_row(line) for line in cost.splitlines()] == [
        "AGENT COST TOOK",
        "broadcast-compare rehearsed",
        "├─ direct rehearsed",
        "├─ thorough rehearsed",
        "└─ contrary rehearsed",
    ]
    assert [line.split()[-2] for line in costs.splitlines()[2:]] == ["rehearsed"]
    assert "used 3 rehearsed calls in " in results
    assert "model call" not in shown + cost + costs + results


def test_a_rehearsal_ends_with_the_number_of_rehearsed_calls(desk: Desk) -> None:
    said = desk.invoke("run", "answer", "Tabs or spaces?")

    last = said.stderr.splitlines()[-1]
    assert last.startswith(f"run {desk.run_id()}: succeeded in ")
    assert last.endswith(", 1 rehearsed call")


def test_a_run_with_both_counts_only_the_calls_that_reached_a_model(desk: Desk) -> None:
    desk.write_agent("lead", make_usage_move(1000, 100, usd=0.01), advisors=["answer"])

    said = desk.invoke("run", "lead", "do it")

    assert said.stderr.splitlines()[-1].endswith(", 1 model call, 1,100 tokens, $0.0100; 1 rehearsed call")
    total = desk.invoke("cost", desk.run_id()).stdout.splitlines()[1]
    assert normalize_row(total) == "lead 1 1,000 100 $0.0100"
