"""The program that runs all tests: what it tries again, and what it reports."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "tools" / "run_tests.py"
FAILING = "def test_that_fails(): assert False\n"
PASSING = "def test_that_passes(): pass\n"
ONCE_FAILING = """
from pathlib import Path

def test_that_fails_once():
    memory = Path(__file__).with_suffix(".memory")
    has_run = memory.exists()
    memory.touch()
    assert has_run
"""
SLOW = "import pytest\npytestmark = pytest.mark.slow\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\naddopts = -q --strict-markers\n")
    return tmp_path


def run_tests(folder: Path, *passes: str, files: Mapping[str, str], processes: int = 0) -> tuple[int, str]:
    """Write test files, run them, and return the exit code and the output."""
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    # Without the plug-ins that these tests do not need, pytest starts in a fraction of the time.
    plugins = ("xdist.plugin", "_hypothesis_pytestplugin", "pytest_timeout", "no:cacheprovider")
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *passes, "--", "-n", str(processes), *(f"-p{name}" for name in plugins)],
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def get_last_section(said: str, heading: str) -> list[str]:
    """Return the lines below the heading, which must be the last one."""
    before, _, after = said.rpartition(f"\n{heading}")
    assert before, said
    return [line.strip() for line in after.splitlines()[1:]]


def test_a_failure_that_passes_alone_is_listed_at_the_end_as_not_dependable(folder: Path) -> None:
    code, said = run_tests(folder, "fast", processes=2, files={"once": ONCE_FAILING, "good": PASSING})

    assert code == 0, said
    assert get_last_section(said, "not dependable") == ["test_once.py::test_that_fails_once"]


def test_a_test_that_fails_twice_fails_the_pass_and_the_others_are_still_listed(folder: Path) -> None:
    files = {"once": ONCE_FAILING, "bad": FAILING, "later": SLOW + PASSING}

    code, said = run_tests(folder, "fast", "slow", files=files)

    assert code == 1, said
    assert "failed twice:\n  test_bad.py::test_that_fails\n" in said
    assert get_last_section(said, "not dependable") == ["test_once.py::test_that_fails_once"]
    assert "1 passed, 2 deselected" not in said, "the slow tests are not started after a failure"


@pytest.mark.slow
def test_the_sixth_failure_in_all_passes_is_not_tried_again(folder: Path) -> None:
    once = {f"once{number}": ONCE_FAILING for number in range(3)}
    slow = {f"slow{number}": SLOW + ONCE_FAILING for number in range(3)}

    code, said = run_tests(folder, "fast", "slow", files=once | slow)

    assert code == 1, said
    assert get_last_section(said, "not dependable") == [f"test_{name}.py::test_that_fails_once" for name in once]


def test_six_failures_are_not_tried_again(folder: Path) -> None:
    code, said = run_tests(folder, "fast", files={f"once{number}": ONCE_FAILING for number in range(6)})

    assert code == 1, said
    assert "not dependable" not in said
    assert said.count("6 failed") == 1


@pytest.mark.slow
def test_a_file_that_cannot_be_imported_is_a_failure(folder: Path) -> None:
    files = {"broken": "import nothing_of_this_name\n", "good": PASSING}

    code, said = run_tests(folder, "fast", processes=2, files=files)

    assert code != 0, said


def test_a_pass_that_does_not_exist_runs_nothing(folder: Path) -> None:
    code, said = run_tests(folder, "fats", files={"good": PASSING})

    assert (code, "passed" in said) == (2, False)
