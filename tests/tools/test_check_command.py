"""Checks: a failing command is not hidden by the end of a pipe, and what can hide one is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from podium.tools.run_checks import RunChecks, describe_hidden_exit
from podium.values.event import ToolUse


async def run_check(directory: Path, line: str) -> str:
    tool = RunChecks(directory, {"tests": ("sh", "-c", line)})
    prepared = await tool.prepare(ToolUse(id="1", name="run_checks"))
    answer = await prepared.act()
    assert answer.text.startswith("FAIL") == answer.is_error
    return answer.text


@pytest.mark.parametrize(
    "line", ["(exit 3) 2>&1 | tail -1", "false | cat | cat", "(echo F; false) | grep F", "false |& tee log"]
)
async def test_a_failing_command_in_a_pipe_fails_the_check(tmp_path: Path, line: str) -> None:
    assert (await run_check(tmp_path, line)).startswith("FAIL tests [exit code ")


@pytest.mark.parametrize(
    "line",
    [
        *("false || true", "false; true", "trap 'exit 0' EXIT; false", "false || :", "false &", "false & wait"),
        *("false; exit 0", "! false", "if false; then echo ok; fi", "(false; true)", "{ false; echo done; }"),
        *(
            "false || (echo failed; exit 0)",
            "false; ls",
            "false\nexit 0",
            "set +e; false; true",
            "while false; do :; done",
        ),
        *("bash -c 'false || true'", "sh -c 'false | cat'", "eval 'false; true'", "echo $(false)", "cat <(false)"),
        *("false || printf 'failed\\n' >&2", "if false; then :; else echo no; fi", "true && { false || echo; }"),
    ],
)
async def test_a_check_that_passes_although_a_command_failed_says_how(tmp_path: Path, line: str) -> None:
    text = await run_check(tmp_path, line)

    assert text.startswith("PASS")
    assert "may pass although a command in it fails" in text


@pytest.mark.parametrize(
    "line",
    [
        *("pytest -q", "make lint && make test", "a || b", "cargo test 2>&1", "true", "cd src; pytest", "a & wait $!"),
        *(
            "a || exit 1",
            "set -e; a; b",
            "a || { echo failed; exit 1; }",
            "! grep -r TODO src",
            "a; code=$?; exit $code",
        ),
        *("if ! a; then exit 1; else exit 2; fi", "if [ -f x ]; then a; fi", "X=1; a", "trap 'rm -f x' EXIT; a"),
        *("echo 'a || true' && b", "a | tail -1", "[[ -f x ]] && a", "export A=1; a", "(cd x && a)"),
    ],
)
def test_an_honest_check_is_not_suspected(line: str) -> None:
    assert describe_hidden_exit(("sh", "-c", line)) == ""
