"""A store in difficult conditions: kills, stopped processes, torn files, and files that cannot be written."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from podium.core.journal_rows import find_chain_break
from podium.core.timeline import Timeline
from podium.store.reader import StoreReader
from podium.store.run_store import RunStore
from podium.values.errors import StoreFailed
from podium.values.event import Noticed

WRITER = """
import asyncio, pathlib, sys
from podium.values.event import Noticed, StopAsked
from podium.core.timeline import Timeline
from podium.store.run_store import RunStore

async def main(path, run):
    async with RunStore(pathlib.Path(path)) as store:
        timeline = Timeline(run, store.begin_run(run))
        while True:
            for _ in range(7):
                timeline.append(Noticed(text="x" * 100), scope="")
            if timeline.seq % 5 == 0:
                timeline.append(StopAsked(), scope="")
            await timeline.wait_written()
            print(timeline.seq, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


def start_writer(path: Path, run: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", WRITER, str(path), run], stdout=subprocess.PIPE, text=True)


def kill_after_acknowledgements(process: subprocess.Popen[str], lines: int) -> int:
    """Read this many acknowledgements, kill the writer, and return its last acknowledgement."""
    assert process.stdout is not None
    for _ in range(lines):
        assert process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    rest, _ = process.communicate()
    whole = [line for line in rest.splitlines(keepends=True) if line.endswith("\n")]
    return int(whole[-1]) if whole else 0


def test_acknowledged_entries_survive_kill_9(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    for round, lines in enumerate((1, 3, 20, 100)):
        last = kill_after_acknowledgements(start_writer(path, f"r{round}"), lines)

        with StoreReader(path) as reader:
            rows = reader.read_rows(f"r{round}")
        assert len(rows) >= last
        assert find_chain_break(rows) is None
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def test_several_processes_write_to_one_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    writers = [start_writer(path, f"r{number}") for number in range(4)]
    lasts = [kill_after_acknowledgements(process, 30) for process in writers]

    with StoreReader(path) as reader:
        for number, last in enumerate(lasts):
            rows = reader.read_rows(f"r{number}")
            assert len(rows) >= last
            assert find_chain_break(rows) is None


def suspend_past_lease(process: subprocess.Popen[str], path: Path) -> None:
    """Suspend a writer between two transactions, and let its lease expire."""
    assert process.stdout is not None
    while True:
        process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        connection = sqlite3.connect(path, timeout=0.1)
        try:
            connection.execute("UPDATE owner SET until = 0")
            connection.commit()
        except sqlite3.OperationalError:
            process.send_signal(signal.SIGCONT)  # it was in the middle of a transaction
        else:
            return
        finally:
            connection.close()


async def test_a_process_that_sleeps_past_its_lease_is_refused_when_it_wakes(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    sleeper = start_writer(path, "r")
    suspend_past_lease(sleeper, path)

    async with RunStore(path) as store:
        timeline = Timeline("r", await store.claim_run("r"))
        timeline.load(await store.read_rows("r"))
        timeline.append(Noticed(text="taken over"), scope="")
        await timeline.wait_written()
        sleeper.send_signal(signal.SIGCONT)
        sleeper.communicate()

    assert sleeper.returncode == 1
    with StoreReader(path) as reader:
        rows = reader.read_rows("r")
        assert find_chain_break(rows) is None
        assert rows[-1].seq == timeline.seq
        assert rows[-1].epoch == 2


OPENER = """
import pathlib, sys
from podium.store.store_connection import open_connection

sys.stdin.readline()
open_connection(pathlib.Path(sys.argv[1]), create=True).execute("SELECT count(*) FROM run").fetchone()
"""


def test_many_processes_may_come_to_a_new_store_at_the_same_moment(tmp_path: Path) -> None:
    for round in range(5):
        openers = [
            subprocess.Popen([sys.executable, "-c", OPENER, str(tmp_path / f"{round}.db")], stdin=subprocess.PIPE)
            for _ in range(6)
        ]
        for opener in openers:
            assert opener.stdin is not None
            opener.stdin.write(b"go\n")
            opener.stdin.flush()

        assert [opener.communicate() and opener.returncode for opener in openers] == [0] * 6


async def test_a_torn_last_write_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    kill_after_acknowledgements(start_writer(path, "r"), 5)
    log = path.with_name("s.db-wal")
    size = log.stat().st_size

    for cut in (1, 17, 500, 1111, 3000, 4095):
        copy = tmp_path / f"torn-{cut}.db"
        shutil.copy(path, copy)
        shutil.copy(log, copy.with_name(copy.name + "-wal"))
        os.truncate(copy.with_name(copy.name + "-wal"), size - cut)
        with StoreReader(copy) as reader:
            rows = reader.read_rows("r")
        assert rows
        assert find_chain_break(rows) is None


async def test_a_store_that_cannot_be_written_is_refused_before_anything_begins(tmp_path: Path) -> None:
    blocked = tmp_path / "not-a-folder"
    blocked.write_text("a file")

    with pytest.raises(StoreFailed, match="cannot create or open the store"):
        await RunStore(blocked / "s.db").__aenter__()


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become somebody else")
def test_a_store_of_another_user_is_reported_in_one_sentence() -> None:
    program = (
        "import os, sys, pathlib\n"
        "from podium.values.errors import StoreFailed\nfrom podium.store.reader import StoreReader\n"
        "os.setuid(65534)\n"
        "try:\n    StoreReader(pathlib.Path(sys.argv[1]))\nexcept StoreFailed as error:\n    print(error)\n"
    )
    with TemporaryDirectory() as folder:
        path = Path(folder, "s.db")
        path.parent.chmod(0o755)
        kill_after_acknowledgements(start_writer(path, "r"), 1)

        said = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=False)

    assert "cannot open or write to" in said.stdout, said.stderr
