"""The environment in which the tests themselves run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_a_repository_that_is_named_in_the_environment_is_not_changed_by_tests(tmp_path: Path) -> None:
    named, folder = tmp_path / "named.git", tmp_path / "folder"
    folder.mkdir()
    program = (
        f"import subprocess, tests.conftest; subprocess.run(['git', 'init', '-q'], cwd={str(folder)!r}, check=True)"
    )

    subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "GIT_DIR": str(named), "GIT_WORK_TREE": str(tmp_path)},
        check=True,
    )

    assert not named.exists()
    assert (folder / ".git").is_dir()
