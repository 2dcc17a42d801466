"""The server of tests ends with the process that started it, also if it is killed."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

PROGRAM = """
import time
from podium.testing.postgres_cluster import run_cluster

with run_cluster() as server:
    print(server.folder, server.folder / "data/postmaster.pid", flush=True)
    time.sleep(600)
"""


def test_a_server_ends_when_the_process_that_started_it_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        folder, pids = map(Path, process.stdout.readline().split())
        pid = int(pids.read_text().split()[0])
        process.kill()

    deadline = time.monotonic() + 30
    while folder.exists() or Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline, f"{folder} or process {pid} is still there"
        time.sleep(0.05)
