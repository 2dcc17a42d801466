#!/usr/bin/env python3
"""Run the tests, and try a few that fail once more, alone: one that passes then is listed as not dependable.

    tools/run_tests.py PASS... [-- OPTION...]      a pass is fast or slow; the options are for pytest

A test that watches other processes or a browser can fail while the machine is busy. So up to five failures, in all
passes together, are tried again. The exit code is 1 if one of them fails again, or if there are more.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

MOST_TRIED_AGAIN = 5
PASSES = {
    "fast": ("-m", "not slow", "-n", "4", "--dist", "worksteal"),
    # Beside two others, some of these tests take minutes.
    "slow": ("-m", "slow", "--hypothesis-profile=default", "--timeout=600", "-n", "3", "--dist", "worksteal"),
}
RECORD = "--record"
"""The first argument of the process that runs a pass. The second is the file to which it writes what failed."""


class FailureRecorder:
    """A plug-in for pytest that collects the ids of what failed: tests, or files that cannot be imported."""

    def __init__(self) -> None:
        self.failed: dict[str, None] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed[report.nodeid] = None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed[report.nodeid] = None


def main(arguments: Sequence[str]) -> int:
    """Run passes, try their failures again, and return the exit code. A pass that fails is the last one."""
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    names, options = arguments[:cut], arguments[cut + 1 :]
    if not names or not set(names) <= PASSES.keys():
        print(__doc__, file=sys.stderr)
        return 2
    undependable: list[str] = []
    code = 0
    for name in names:
        code = run_pass([*PASSES[name], *options], undependable)
        if code != 0:
            break
    if undependable:
        print("\nnot dependable, because they failed at first and passed when they were run alone:")
        print("\n".join(f"  {test}" for test in undependable), flush=True)
    return code


def run_pass(options: Sequence[str], undependable: list[str]) -> int:
    """Run a pass and return its exit code. Failures that pass when they are run alone are added to `undependable`."""
    with TemporaryDirectory() as folder:
        report = Path(folder) / "failed.json"
        code = subprocess.run([sys.executable, __file__, RECORD, str(report), *options], check=False).returncode
        failed: list[str] = json.loads(report.read_bytes()) if report.exists() else []
    if code != pytest.ExitCode.TESTS_FAILED or not failed:
        return code
    if len(undependable) + len(failed) > MOST_TRIED_AGAIN:
        print(f"\nmore than {MOST_TRIED_AGAIN} failures, so none of the {len(failed)} in this pass is tried again")
        return code
    print(f"\ntrying {len(failed)} again, alone", flush=True)
    again = [test for test in failed if not passes_alone(test, options)]
    undependable += [test for test in failed if test not in again]
    if not again:
        return 0
    print("\nfailed twice:")
    print("\n".join(f"  {test}" for test in again), flush=True)
    return code


def passes_alone(test: str, options: Sequence[str]) -> bool:
    """Run one test in a process of its own, and return whether it passes."""
    return subprocess.run([sys.executable, "-m", "pytest", test, *options, "-n", "0"], check=False).returncode == 0


def run_and_record(report: Path, options: Sequence[str]) -> int:
    """Run pytest in this process, write the ids of what failed to a file, and return the exit code."""
    sys.path[0] = str(Path.cwd())  # as with `python -m pytest`
    recorder = FailureRecorder()
    code = pytest.main([*options], plugins=[recorder])
    report.write_text(json.dumps([*recorder.failed]), encoding="utf-8")
    return int(code)


if __name__ == "__main__":
    if sys.argv[1:2] == [RECORD]:
        sys.exit(run_and_record(Path(sys.argv[2]), sys.argv[3:]))
    sys.exit(main(sys.argv[1:]))
