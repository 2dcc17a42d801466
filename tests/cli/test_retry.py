"""`podium retry`: a run tried again from where it failed."""

from __future__ import annotations

import pytest

from .conftest import Desk


@pytest.fixture
def failed(desk: Desk) -> str:
    """A run that used up its budget after its advisor had answered, and its id."""
    desk.write_agent("lead", "the answer", advisors=["helper"])
    desk.write_agent("helper", "some advice")
    assert desk.invoke("run", "lead", "do it", "--budget", "turns=1").exit_code == 5
    return desk.run_id()


def test_a_retry_with_more_budget_makes_only_the_missing_call(desk: Desk, failed: str) -> None:
    said = desk.invoke("retry", failed, "--budget", "turns=2")

    assert (said.exit_code, said.stdout) == (0, "the answer\n")
    assert said.stderr.startswith(f"run {desk.run_id()}: forked from run {failed} at entry ")
    assert ", with 1 model call shared" in said.stderr
    assert desk.invoke("verify", desk.run_id()).exit_code == 0


def test_a_retry_from_an_agent_runs_it_again(desk: Desk, failed: str) -> None:
    said = desk.invoke("retry", failed, "--from", "helper", "--budget", "turns=2")

    assert (said.exit_code, said.stdout) == (0, "the answer\n")
    assert ", with 0 model calls shared" in said.stderr
    assert "helper: calling" in said.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nobody"], "run 'nobody' not found"),
        (["RUN", "--from", "step-1"], "has not started a plan step or agent 'step-1'; agents: lead, helper"),
        (["RUN", "--budget", "turns=none"], "turns"),
    ],
)
def test_a_wrong_retry_is_refused_with_one_sentence(
    desk: Desk, failed: str, arguments: list[str], sentence: str
) -> None:
    said = desk.invoke("retry", *(failed if argument == "RUN" else argument for argument in arguments))

    assert (said.exit_code, said.stderr.count("\n")) == (2, 1)
    assert sentence in said.stderr
    assert [run.id for run in desk.runs()] == [failed]
