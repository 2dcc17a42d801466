"""The examples run as a reader would run them, and do what they say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"
HEART = EXAMPLES / "heart.py"


def test_the_heart_resumes_after_a_crash_and_repeats_nothing_that_had_finished(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(HEART)],
        cwd=tmp_path,
        env={**os.environ, "PODIUM_HOME": str(tmp_path / "unused")},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1:] == [
        "measuring the left wall",
        "measuring the right wall",
        "killed by signal 9",
        "measuring the right wall",
        "resumed: Cut one board to 240 cm and one to 180 cm.",
        "model calls: planner-model, planner-model, builder-model, builder-model",
    ]
    assert list(tmp_path.iterdir()) == []


def test_the_heart_fits_on_one_screen() -> None:
    code = [line for line in HEART.read_text(encoding="utf-8").partition('"""\n\n')[2].splitlines() if line.strip()]

    assert len(code) < 60
