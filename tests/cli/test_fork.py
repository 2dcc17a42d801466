"""`podium fork`: a new run from an earlier point of another one."""

from __future__ import annotations

import json

import pytest

from podium.store.reader import StoreReader
from podium.testing import read_entries
from podium.values.event import ModelReplied

from .conftest import SLOW, Desk, wait_for


@pytest.fixture
def source(desk: Desk) -> str:
    """A run with an advisor and a handoff, and its id."""
    desk.write_agent("lead", "the draft", advisors=["helper"], handoff="clerk")
    desk.write_agent("helper", "some advice")
    desk.write_agent("clerk", "the answer")
    assert desk.invoke("run", "lead", "do it").exit_code == 0
    return desk.run_id()


def find_reply(desk: Desk, run: str, operation: str) -> int:
    """Return the number of the entry with an agent's reply."""
    return next(
        entry.seq
        for entry in read_entries(desk.store, run)
        if entry.operation == operation and isinstance(entry.event, ModelReplied)
    )


def test_a_fork_shares_the_calls_before_it_and_makes_the_others_itself(desk: Desk, source: str) -> None:
    at = find_reply(desk, source, "lead")

    said = desk.invoke("fork", source[:6], "--at", str(at))

    fork = desk.run_id()
    assert (said.exit_code, said.stdout) == (0, "the answer\n")
    assert (
        said.stderr.splitlines()[0] == f"run {fork}: forked from run {source} at entry {at}, with 2 model calls shared"
    )
    assert "clerk: calling scripted" in said.stderr
    assert "helper: calling" not in said.stderr
    assert [desk.invoke("verify", run).exit_code for run in (source, fork)] == [0, 0]


def test_show_and_the_lists_say_what_a_run_was_forked_from(desk: Desk, source: str) -> None:
    desk.invoke("fork", source, "--at", "5")
    fork = desk.run_id()

    assert f"fork of  run {source} at entry 5\n" in desk.invoke("show", fork).stdout
    assert f"[fork of {source}] do it" in desk.invoke("ps").stdout
    assert f"run {fork}: forked from run {source}@5; request to lead" in desk.invoke("logs", fork).stdout
    listed = {run["id"]: run["forked_from"] for run in json.loads(desk.invoke("ps", "--json").stdout)["runs"]}
    assert listed == {source: "", fork: f"{source}@5"}
    assert json.loads(desk.invoke("show", fork, "--json").stdout)["forked_from"] == f"{source}@5"
    assert "fork" not in desk.invoke("show", source).stdout


def test_what_a_fork_shares_is_paid_once(desk: Desk, source: str) -> None:
    desk.invoke("fork", source, "--at", str(find_reply(desk, source, "lead")))

    costs = json.loads(desk.invoke("cost", "--json").stdout)

    assert {run["id"]: run["usage"]["calls"] for run in costs["runs"]} == {desk.run_id(): 1, source: 3}
    assert costs["usage"]["calls"] == 4


def test_a_fork_that_was_killed_goes_on(desk: Desk, source: str) -> None:
    at = find_reply(desk, source, "lead/advice:helper#1")
    with StoreReader(desk.store) as reader:
        shared = reader.read_rows(source)[:at]

    died = desk.run_podium("fork", source, "--at", str(at), PODIUM_FAULT=str(at + 6))
    fork = desk.run_id()
    said = desk.run_podium("resume", fork)

    assert died.returncode == 137
    assert (said.returncode, said.stdout) == (0, "the answer\n")
    assert desk.kinds(fork).count("model_replied") == 3
    assert desk.kinds(fork)[1:at] == [row.kind for row in shared[1:]]
    assert desk.invoke("verify", fork).exit_code == 0


def test_a_run_can_be_forked_while_it_is_running(desk: Desk) -> None:
    desk.write_agent("lead", SLOW, advisors=["helper"])
    desk.write_agent("helper", "some advice")
    with desk.start_podium("run", "lead", "do it") as process:
        wait_for(process.stderr, "lead: calling")
        source = desk.run_id()
        with desk.start_podium("fork", source) as forking:
            wait_for(forking.stderr, f"forked from run {source}")
            wait_for(forking.stderr, "lead: resuming its turn")
        assert process.poll() is None

    assert desk.kinds(desk.run_id()).count("model_replied") == 1


def test_the_request_of_a_fork_is_read_from_standard_input(desk: Desk, source: str) -> None:
    said = desk.invoke("fork", source, "--at", "2", "--request", "-", input="Mention the price.\n")

    assert said.exit_code == 0
    assert "message for lead by" in desk.invoke("logs", desk.run_id()).stdout


def test_the_result_of_a_fork_as_json_names_the_new_run(desk: Desk, source: str) -> None:
    said = desk.invoke("fork", source, "--at", "5", "--json", "--quiet")

    assert json.loads(said.stdout)["run_id"] == desk.run_id() != source
    assert said.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nobody"], "run 'nobody' not found"),
        (["RUN"], "has nothing left to do at entry"),
        (["RUN", "--at", "step-1"], "has no snapshot or entry 'step-1'; give an entry number from 1"),
        (["RUN", "--at", "9999"], "has no snapshot or entry '9999'"),
        (["RUN", "--at", "5", "--decide", "colour"], "invalid value for --decide: 'colour'; use DECISION=OPTION"),
        (["RUN", "--at", "5", "--decide", "colour=red"], "has no decision 'colour'; it has no decisions"),
        (["RUN", "--at", "5", "--request", " "], "the text is empty"),
        (["RUN", "--at", "5", "--budget", "money=3"], "unknown limit 'money'"),
    ],
)
def test_a_wrong_fork_is_refused_with_one_sentence(
    desk: Desk, source: str, arguments: list[str], sentence: str
) -> None:
    said = desk.invoke("fork", *(source if argument == "RUN" else argument for argument in arguments))

    assert said.exit_code == 2
    assert sentence in said.stderr
    assert said.stderr.count("\n") == 1
    assert [run.id for run in desk.runs()] == [source]
