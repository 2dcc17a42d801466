"""Other systems: they say once what works there, and modules that only POSIX systems have are not needed for a run."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from podium.testing import make_repository
from podium.testing.served_model import serve_model

from .conftest import Desk

POSIX_MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty")
HIDDEN = f"""
import runpy, sys
sys.modules.update(dict.fromkeys({POSIX_MODULES!r}))
sys.argv = ["podium", *sys.argv[1:]]
runpy.run_module("podium", run_name="__main__")
"""
ELSEWHERE = """
import sys
import podium.cli.commands.agents
from podium.cli.root import podium as root
sys.platform = sys.argv[1]
sys.exit(root.run_command_line(["agents", "--json"]))
"""


def run_python(desk: Desk, program: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=desk.repo,
        env={**desk.environment, **variables},
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )


def test_a_run_needs_no_module_that_only_posix_systems_have(desk: Desk) -> None:
    make_repository(desk.repo)
    (desk.repo / "sub").mkdir()
    (desk.repo / "sub" / "AGENTS.md").write_text("Use tabs.")
    move: dict[str, Any] = {"calls": [{"name": "write_file", "arguments": {"path": "a.txt", "content": "x"}}]}
    (desk.home / "config.yaml").write_text("permissions: {allow: [Write]}\n")
    desk.write_agent("writer", engine="model", tools=["Write"])
    with serve_model() as model:
        model.says(move, "done")
        done = run_python(desk, HIDDEN, "run", "writer", "go", "--no-input", **model.environment())
        shown = run_python(desk, HIDDEN, "show", desk.run_id())

    assert done.returncode == 0, done.stderr
    assert (desk.repo / "a.txt").read_text() == "x"
    assert shown.returncode == 0, shown.stderr


@pytest.mark.parametrize(
    ("platform", "said"),
    [
        (
            "darwin",
            "notice: Podium is not tested on macOS: runs, teams and workers should work, but there is no sandbox",
        ),
        ("win32", "notice: on native Windows, agents and teams can only be listed and drawn; to run them, use WSL 2"),
        ("freebsd14", "notice: Podium is not tested on this operating system"),
    ],
)
def test_another_system_says_once_in_one_sentence_what_works_there(desk: Desk, platform: str, said: str) -> None:
    first, second = (run_python(desk, ELSEWHERE, platform) for _ in range(2))

    assert (first.returncode, len(first.stderr.splitlines())) == (0, 1), first.stderr
    assert first.stderr.startswith(said)
    assert first.stdout == second.stdout
    assert second.stderr == ""
