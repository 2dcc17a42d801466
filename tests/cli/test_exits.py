from __future__ import annotations

from pathlib import Path

import pytest

from podium.cli.terminal import exit_codes
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
        "podium --debug COMMAND shows the traceback\n"
    )


def test_a_refusal_is_reported_at_the_end_and_decides_the_exit_code_only_if_strict(desk: Desk) -> None:
    write = {"calls": [{"name": "write_file", "arguments": {"path": "a.txt", "content": "x"}}]}
    desk.write_agent("sly", write, "done anyway", tools=["write_file"])

    usual, quiet, strict = (
        desk.invoke("run", "sly", "go", "--no-input", *words) for words in ((), ("--quiet",), ("--strict",))
    )

    assert (usual.exit_code, quiet.exit_code, strict.exit_code) == (0, 0, 3)
    for said in (usual, quiet, strict):
        assert said.stdout == "done anyway\n"
        assert "write_file was refused" in said.stderr
        assert "podium audit" in said.stderr


def test_a_run_that_is_parked_exits_with_3(desk: Desk) -> None:
    write = {"calls": [{"name": "write_file", "arguments": {"path": "a.txt", "content": "x"}}]}
    desk.write_agent("sly", write, "done", tools=["write_file"])

    said = desk.invoke("run", "sly", "go", "--park")

    assert said.exit_code == 3
    assert "paused; continue with: podium resume" in said.stderr
