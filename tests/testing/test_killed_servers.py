"""The servers of tests end with the process that started them, also if it is killed."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = """
import time
from podium.testing.nats_server import run_nats_server
from podium.testing.postgres_cluster import run_cluster

with {server}() as server:
    print(server.folder, server.folder / "{pid_file}", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize(("server", "pid_file"), [("run_cluster", "data/postmaster.pid"), ("run_nats_server", "pid")])
def test_a_server_ends_when_the_process_that_started_it_is_killed(server: str, pid_file: str) -> None:
    program = PROGRAM.format(server=server, pid_file=pid_file)
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        folder, pids = map(Path, process.stdout.readline().split())
        pid = int(pids.read_text().split()[0])
        process.kill()

    deadline = time.monotonic() + 30
    while folder.exists() or Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline, f"{folder} or process {pid} is still there"
        time.sleep(0.05)
