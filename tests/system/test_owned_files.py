"""Temporary files that are named after the process that owns them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from podium.system.owned_files import WRITTEN, make_owned_name, remove_if_stale


def test_the_file_of_a_process_that_has_exited_is_removed_even_before_the_process_is_reaped(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        own = tmp_path / make_owned_name(WRITTEN)
        file = tmp_path / own.name.replace(f"-{os.getpid()}-", f"-{process.pid}-")
        file.touch()
        own.touch()
        remove_if_stale(file)
        was_kept = file.exists()
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

        remove_if_stale(file)
        remove_if_stale(own)

    assert was_kept
    assert not file.exists()
    assert own.exists()
