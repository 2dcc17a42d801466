from __future__ import annotations

import getpass
import json
from collections.abc import Callable

import pytest

from podium.runs.run_steering import describe_effective_time
from podium.store.reader import StoreReader
from podium.values.agent import Budget
from podium.values.event import BudgetChanged

from .conftest import SLOW, Desk, read_until_exit, wait_for


def test_the_budget_of_a_run_is_changed_from_another_process(desk: Desk) -> None:
    desk.write_agent("lead", "the answer", advisors=["helper"])
    desk.write_agent("helper", {"says": "some advice", "delay": 1})
    with desk.start_podium("run", "lead", "do it", "--budget", "turns=1") as process:
        wait_for(process.stderr, "helper: calling")
        run = desk.run_id()

        said = desk.invoke("budget", run[:8], "turns=5,tokens=300000")
        answer, told = read_until_exit(process)

    assert said.stderr == f"run {run}: tokens=300000,turns=5 applies from the next model call\n"
    assert answer == "the answer\n"
    assert f"run {run}: budget changed by {getpass.getuser()} (command) to tokens=300000,turns=5" in told
    assert desk.invoke("budget", run).stdout.splitlines()[0] == "budget  tokens=300000,turns=5"


def test_a_limit_below_the_current_usage_ends_the_run_with_partial_results(desk: Desk) -> None:
    desk.write_agent("lead", "never", advisors=["helper"])
    desk.write_agent("helper", {"says": "some advice", "delay": 1})
    with desk.start_podium("run", "lead", "do it") as process:
        wait_for(process.stderr, "helper: calling")
        desk.invoke("budget", desk.run_id(), "turns=1")
        _, said = read_until_exit(process)

    assert process.returncode == 5
    assert "the run's budget of 1 model calls is not enough" in said
    assert "some advice" in desk.invoke("results", desk.run_id()).stdout


def test_the_message_says_when_changed_limits_take_effect() -> None:
    assert describe_effective_time(Budget(turns=5)) == "from the next model call"
    assert describe_effective_time(Budget(seconds=5)) == "immediately"
    assert (
        describe_effective_time(Budget(seconds=5, turns=5))
        == "from the next model call, except the time limit, which applies immediately"
    )


def test_a_limit_in_seconds_ends_a_run_during_a_model_call(desk: Desk) -> None:
    desk.write_agent("lead", SLOW)
    with desk.start_podium("run", "lead", "do it") as process:
        wait_for(process.stderr, "lead: calling")
        desk.invoke("budget", desk.run_id(), "seconds=0.5")
        _, said = read_until_exit(process)

    assert process.returncode == 5
    assert "the run's budget of 0.5 s is used up" in said


def test_a_budget_change_for_a_run_without_a_process_applies_on_resume(
    desk: Desk, make_interrupted_run: Callable[[], str]
) -> None:
    run = make_interrupted_run()

    said = desk.invoke("budget", run, "turns=1")
    resumed = desk.invoke("resume", run)

    assert f"run {run} is not running; turns=1 will apply" in said.stderr
    assert resumed.exit_code == 5
    with StoreReader(desk.store) as reader:
        assert [one.event for one in reader.read_entries(run) if isinstance(one.event, BudgetChanged)]


def test_a_run_that_has_ended_keeps_its_budget(desk: Desk) -> None:
    desk.write_agent("lead", {"calls": [{"name": "x"}]}, "never")
    desk.invoke("run", "lead", "do it", "--budget", "turns=1")

    said = desk.invoke("budget", desk.run_id(), "turns=9")

    assert said.exit_code == 2
    assert "has ended (failed) and cannot be resumed" in said.stderr
    assert f"retry it with: podium retry {desk.run_id()} --budget" in said.stderr


def test_money_is_refused_where_no_price_is_known(desk: Desk) -> None:
    # It is never called; it is enough that the lead could call it.
    desk.write_agent("helper", "x", engine="model", model="openai:nobody-knows-it")
    desk.write_agent("lead", SLOW, agents=["helper"])
    with desk.start_podium("run", "lead", "do it", OPENAI_API_KEY="none") as process:
        wait_for(process.stderr, "lead: calling")

        said = desk.invoke("budget", desk.run_id(), "usd=5")

        process.kill()

    assert said.exit_code == 2
    assert "whose price is not known, so a budget in usd cannot be enforced; limit tokens instead" in said.stderr


def test_programs_get_limits_and_usage(desk: Desk) -> None:
    desk.write_agent("lead", "the answer")
    desk.invoke("run", "lead", "do it", "--budget", "usd=2")

    said = json.loads(desk.invoke("budget", desk.run_id(), "--json").stdout)

    assert said["budget"] == {"usd": 2.0, "tokens": None, "seconds": None, "turns": None, "files_changed": None}
    assert said["usage"]["calls"] == 1


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        ("wishes=3", "unknown limit 'wishes'; available: usd, tokens, seconds, turns, files_changed"),
        ("bogus", "'bogus' is not a budget: usd must be a number above zero, got 'bogus'; "),
        ("usd=", "'usd=' is not a budget: usd must be a number above zero, got ''; "),
        ("usd=inf", "'usd=inf' is not a budget: usd must be a number above zero, got 'inf'; "),
        ("usd=1,tokens=nan", "tokens must be a whole number above zero, got 'nan'; "),
        ("tokens=1.5", "tokens must be a whole number above zero, got '1.5'; "),
        ("tokens=1e+26", "tokens must be a whole number above zero, up to 1000000000000, got '1e+26'; "),
        ("turns=-1", "turns must be a whole number above zero, got '-1'; "),
        ("seconds=0", "seconds must be a number above zero, got '0'; "),
        (" , ", "' , ' is not a budget: it has no limit; use e.g. usd=2,tokens=200000"),
    ],
)
def test_an_invalid_budget_is_refused_in_one_sentence(desk: Desk, limits: str, sentence: str) -> None:
    desk.write_agent("lead", "the answer")
    desk.invoke("run", "lead", "do it")

    changed = desk.invoke("budget", desk.run_id(), limits)
    started = desk.invoke("run", "lead", "do it", "--budget", limits)

    for said in (changed, started):
        assert said.exit_code == 2
        assert sentence in said.stderr
        assert "Expected" not in said.stderr
