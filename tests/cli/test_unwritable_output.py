"""Output or a home that cannot be written to: a full disk and a closed stream are never an internal error."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from .conftest import Desk

PODIUM = f"{sys.executable} -m podium"


def run_in_shell(desk: Desk, command: str, *before: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*before, "sh", "-c", command], cwd=desk.repo, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )


@pytest.mark.parametrize(
    "arguments",
    ["agents", "--help", *(pytest.param(one, marks=pytest.mark.slow) for one in ("agents --help", "doctor", "check"))],
)
def test_output_on_a_full_disk_is_reported_in_one_sentence(desk: Desk, arguments: str) -> None:
    said = run_in_shell(desk, f"{PODIUM} {arguments} > /dev/full")

    assert said.returncode == 1
    assert said.stderr == "podium: cannot write: the disk is full; free some space, then try again\n"


def test_a_command_works_without_its_output_streams(desk: Desk) -> None:
    desk.write_agent("lead", "the answer")
    desk.invoke("run", "lead", "go")
    run = desk.run_id()

    said = run_in_shell(desk, f"{PODIUM} show {run} >&- && {PODIUM} show {run} 2>&- && {PODIUM} nothing 2>/dev/full")

    assert (said.returncode, said.stderr) == (2, "")
    assert "the answer" in said.stdout


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to mount a small file system")
@pytest.mark.parametrize("left", [0, 200])
def test_a_home_on_a_full_disk_is_reported_in_one_sentence(desk: Desk, left: int) -> None:
    desk.home.mkdir(exist_ok=True)
    fill = f"mount -t tmpfs -o size=4m tmpfs {desk.home}; head -c {(4096 - left) * 1024} /dev/zero > {desk.home}/filler"

    said = run_in_shell(desk, f"{fill}; {PODIUM} run worker hello; {PODIUM} doctor", "unshare", "--mount")

    assert "the disk is full" in said.stderr
    assert "internal error" not in said.stdout + said.stderr
    assert "Traceback" not in said.stderr
