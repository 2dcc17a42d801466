"""Running the checks that the person has configured."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from podium.core.gate import InvalidCall
from podium.tools.run_checks import RunChecks

from .doing import call_tool, make_started_action, make_tool_use


def make_run_checks(directory: Path) -> RunChecks:
    return RunChecks(
        directory,
        {"tests": (sys.executable, "-c", "print('2 passed')"), "lint": ("sh", "-c", "seq 9999; echo bad; exit 2")},
    )


async def test_each_check_passes_or_fails_with_the_end_of_its_output(tmp_path: Path) -> None:
    answer = await call_tool(make_run_checks(tmp_path))

    assert answer.is_error
    which, passed, failed = answer.text.split("\n\n")
    assert which == "PASS tests, FAIL lint"
    assert passed == "PASS tests [exit code 0]\n2 passed"
    assert failed.startswith("FAIL lint [exit code 2]\n[… ")
    assert failed.endswith("9999\nbad")
    assert len(failed) < 5000


async def test_one_check_may_be_chosen_and_rules_see_its_command(tmp_path: Path) -> None:
    tool = make_run_checks(tmp_path)

    prepared = await tool.prepare(make_tool_use(tool, name="lint"))

    assert prepared.arguments == {"name": "lint", "command": "sh -c 'seq 9999; echo bad; exit 2'"}
    assert not prepared.is_read_only
    assert await tool.recover(make_started_action(tool, prepared)) is None


async def test_a_call_without_checks_or_with_an_unknown_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidCall, match="This repository has no configured checks"):
        await call_tool(RunChecks(tmp_path, {}))
    with pytest.raises(InvalidCall, match="Check 'types' not found; available: tests, lint"):
        await call_tool(make_run_checks(tmp_path), name="types")


async def test_a_check_that_cannot_be_started_fails(tmp_path: Path) -> None:
    answer = await call_tool(RunChecks(tmp_path, {"x": ("no-such-program-here",)}))

    assert answer.is_error
    assert answer.text.startswith("FAIL x: no-such-program-here cannot be started")
