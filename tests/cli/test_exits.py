from __future__ import annotations

import json
from pathlib import Path

import pytest

from podium.cli.output import exit_codes
from podium.values.errors import (
    AgentFailed,
    BadAgent,
    Failure,
    FailureKind,
    JournalMismatch,
    LeaseLost,
    Mistake,
    NoSuchRun,
    OutsideFailed,
    RunHeld,
    StoreCorrupt,
    StoreFailed,
)
from podium.values.request import Outcome

from .conftest import Desk
from .test_terminal import Terminal

WRITE = {"calls": [{"name": "write_file", "arguments": {"path": "a.txt", "content": "x"}}]}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Mistake("x"), 2),
        (BadAgent("x"), 2),
        (NoSuchRun("x"), 2),
        (RunHeld("x", host="h", pid=1), 6),
        (LeaseLost("x"), 6),
        (ModuleNotFoundError("x"), 7),
        (StoreCorrupt("x"), 8),
        (JournalMismatch("x"), 8),
        (StoreFailed("x"), 1),
        (OutsideFailed("x"), 1),
        (AgentFailed(Failure(kind="limit", agent="a", message="x")), 5),
        (ValueError("x"), 1),
    ],
)
def test_every_kind_of_error_has_its_exit_code(error: Exception, code: int) -> None:
    assert exit_codes.error_exit_code(error) == code


@pytest.mark.parametrize(
    ("outcome", "kind", "code"),
    [
        ("succeeded", None, 0),
        ("failed", "failed", 1),
        ("failed", "limit", 5),
        ("failed", "budget", 5),
        ("timed_out", "timed_out", 5),
        ("cancelled", None, 1),
        ("paused", None, 1),
    ],
)
def test_every_end_of_a_run_has_its_exit_code(outcome: Outcome, kind: FailureKind | None, code: int) -> None:
    failure = None if kind is None else Failure(kind=kind, agent="a", message="x")

    assert exit_codes.run_exit_code(outcome, failure) == code


def test_a_missing_package_is_named(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "rich.py").write_text("raise ModuleNotFoundError(\"No module named 'rich'\", name='rich')")

    said = desk.run_podium("demo", PYTHONPATH=str(tmp_path))

    assert said.returncode == 7
    assert said.stderr == (
        "podium: the Python package rich is not installed; install it with: pip install --upgrade podium\n"
    )


def test_an_internal_error_is_reported_as_one(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "rich.py").write_text("1 / 0")

    said = desk.run_podium("demo", PYTHONPATH=str(tmp_path))

    assert said.returncode == 1
    assert said.stderr == (
        "podium: internal error in Podium: ZeroDivisionError: division by zero; "
        "run podium --debug COMMAND to see the traceback\n"
    )


def test_a_refusal_is_reported_at_the_end_and_decides_the_exit_code_only_if_strict(desk: Desk) -> None:
    desk.write_agent("sly", WRITE, "done anyway", tools=["write_file"])

    usual, quiet, strict = (
        desk.invoke("run", "sly", "go", "--no-input", *words) for words in ((), ("--quiet",), ("--strict",))
    )

    assert (usual.exit_code, quiet.exit_code, strict.exit_code) == (0, 0, 3)
    for said in (usual, quiet, strict):
        assert said.stdout == "done anyway\n"
        assert "write_file was refused" in said.stderr
        assert "podium audit" in said.stderr


MISS = {"calls": [{"name": "edit_file", "arguments": {"path": "a.txt", "old": "n", "new": "m"}}]}


def test_unproved_work_is_said_at_the_end_and_decides_the_exit_code_only_if_strict(desk: Desk) -> None:
    (desk.repo / "a.txt").write_text("a\n")
    desk.write_agent("sly", MISS, "done anyway", tools=["edit_file"])

    usual, quiet, strict = (desk.invoke("run", "sly", "go", *words) for words in ((), ("--quiet",), ("--strict",)))
    told = desk.invoke("run", "sly", "go", "--json")

    assert (usual.exit_code, quiet.exit_code, strict.exit_code, told.exit_code) == (0, 0, 3, 0)
    assert ": succeeded, unproved in" in usual.stderr
    for said in (usual, quiet, strict):
        assert said.stdout == "done anyway\n"
        assert "unproved: sly: its last edit changed nothing: a.txt is unchanged" in said.stderr
    fields = json.loads(told.stdout)
    assert (fields["outcome"], fields["succeeded"]) == ("succeeded", True)
    assert fields["unproved"].startswith("sly: its last edit changed nothing")


def test_a_run_that_is_parked_exits_with_3(desk: Desk) -> None:
    desk.write_agent("sly", WRITE, "done", tools=["write_file"])

    said = desk.invoke("run", "sly", "go", "--park")

    assert said.exit_code == 3
    assert f"podium resume {desk.run_id()}" in said.stderr


@pytest.mark.parametrize(
    ("answer", "option", "code", "state"),
    [
        (("approve",), (), 0, "succeeded"),
        (("deny",), (), 0, "succeeded"),
        (("deny", "--pause"), (), 0, "succeeded"),
        (("deny", "--stop"), (), 4, "cancelled"),
        (("deny", "--stop"), ("--json",), 4, "cancelled"),
        (("deny", "--stop"), ("--quiet", "--strict"), 4, "cancelled"),
    ],
)
def test_the_answer_to_a_parked_run_decides_how_its_resumption_exits(
    desk: Desk, answer: tuple[str, ...], option: tuple[str, ...], code: int, state: str
) -> None:
    desk.write_agent("sly", WRITE, "done", tools=["write_file"])
    desk.invoke("run", "sly", "go", "--park")
    [one] = json.loads(desk.invoke("approvals", "--json").stdout)["waiting"]
    assert desk.invoke(answer[0], one["id"], *answer[1:]).exit_code == 0

    resumed = desk.invoke("resume", desk.run_id(), *option)

    assert resumed.exit_code == code
    assert json.loads(desk.invoke("show", desk.run_id(), "--json").stdout)["state"] == state


def test_a_run_in_which_a_person_refused_something_is_strict_about_it_when_it_is_resumed(desk: Desk) -> None:
    desk.write_agent("sly", WRITE, "done", tools=["write_file"])
    desk.invoke("run", "sly", "go", "--park")
    [one] = json.loads(desk.invoke("approvals", "--json").stdout)["waiting"]
    desk.invoke("deny", one["id"])

    resumed = desk.invoke("resume", desk.run_id(), "--strict")

    assert (resumed.exit_code, resumed.stdout) == (3, "done\n")


@pytest.mark.parametrize("option", [(), ("--json",), ("--jsonl",)])
def test_a_parked_run_exits_with_3_in_every_form_of_output(desk: Desk, option: tuple[str, ...]) -> None:
    desk.write_agent("sly", WRITE, "done", tools=["write_file"])

    assert desk.invoke("run", "sly", "go", "--park", *option).exit_code == 3
    assert desk.invoke("resume", desk.run_id(), "--park", *option).exit_code == 3


def test_a_run_that_a_person_pauses_by_an_answer_exits_with_1(desk: Desk) -> None:
    desk.write_agent("sly", WRITE, "done", tools=["write_file"])
    terminal = Terminal(desk, "run", "sly", "go")
    terminal.wait_for("[y] once")

    terminal.process.send("x")
    terminal.wait_for("Reason for the agent")
    terminal.process.send("\r")

    assert terminal.wait_exit() == 1
    assert any(f"podium resume {desk.run_id()}" in line for line in terminal.lines)
