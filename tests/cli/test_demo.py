from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Desk
from .test_terminal import Terminal


def test_the_demo_shows_a_run_that_survives_its_process_and_a_team_that_carries_out_a_plan(
    desk: Desk, tmp_path: Path
) -> None:
    foreign = {"PODIUM_FAULT": "1", "PODIUM_STORE": "/nowhere", "OPENAI_API_KEY": "k", "GIT_DIR": "/nowhere"}

    said = desk.run_podium("demo", TMPDIR=str(tmp_path), **foreign)

    assert (said.returncode, said.stderr) == (0, "")
    assert "exit code 137" in said.stdout
    assert said.stdout.count("✓ ") == 5 + 7  # the agents in the tree, and the results of the checks
    collaboration = said.stdout.partition("A team in collaborate mode")[2]
    for words in ("plan 1 committed", "s1 blocked", "votes for", "handed over from tester to builder", "s3 done"):
        assert words in collaboration
    assert "✓ one merged branch with the decision record: podium/" in collaboration
    assert "NOT TRUE" not in said.stdout
    assert not desk.store.exists()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_demo_that_is_interrupted_while_a_team_works_in_the_background_leaves_nothing_behind(
    desk: Desk, tmp_path: Path
) -> None:
    terminal = Terminal(desk, "demo", rows=300, TMPDIR=str(tmp_path))
    terminal.wait_for("plan 1 committed")

    terminal.process.sendintr()

    assert terminal.wait_exit() == 130
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_demo_can_be_kept_and_looked_at_and_works_without_git(desk: Desk, tmp_path: Path) -> None:
    said = desk.run_podium("demo", "--keep", TMPDIR=str(tmp_path), PATH="/nowhere")

    assert said.returncode == 0
    assert "This part needs git, which is not installed here." in said.stdout
    [kept] = tmp_path.iterdir()
    run = said.stdout.split("podium show ")[1].split()[0]
    shown = desk.run_podium("show", run, PODIUM_HOME=str(kept / "home"))
    assert f"cd {kept}/shop && export PODIUM_HOME={kept}/home" in said.stdout
    assert "✓ reviewer" in shown.stdout
    assert len(list((kept / "shop" / ".podium" / "agents").iterdir())) == 10


@pytest.mark.slow
def test_the_demo_is_shown_in_the_browser_until_ctrl_c(desk: Desk, tmp_path: Path) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\nkill -INT $(cat {tmp_path}/server)\n')
    browser.chmod(0o755)
    script = f"exec {sys.executable} -m podium demo --open"
    environ = {**os.environ, "PODIUM_HOME": str(desk.home), "BROWSER": str(browser), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(["sh", "-c", script], env=environ, stdout=subprocess.PIPE, text=True) as demo:
        (tmp_path / "server").write_text(str(demo.pid))
        printed = demo.stdout.read() if demo.stdout is not None else ""

    assert demo.returncode in (0, 130)
    assert (tmp_path / "opened").read_text().startswith("http://127.0.0.1:")
    assert "NOT TRUE" not in printed
