"""A store that is damaged, rolled back or deleted: runs stop instead of repeating their actions."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest
from msgspec import structs

from podium.testing import Move, calls

from .conftest import Desk, read_until_exit, wait_for


def write_file(name: str) -> Move:
    return calls("write_file", path=name, content="x\n")


@pytest.fixture
def killed_run(desk: Desk) -> str:
    """Make a run that wrote three files, one after the other, and was killed before its answer."""
    desk.write_agent(
        "writer", write_file("1.txt"), write_file("2.txt"), write_file("3.txt"), {"silent": True}, tools=["write_file"]
    )
    with desk.start_podium("run", "writer", "go", "--permissions", "accept-edits") as process:
        wait_for(process.stderr, "3.txt")
        while desk.kinds(desk.run_id()).count("tool_answered") < 3:
            assert process.poll() is None
        process.kill()
        process.wait()
    assert (desk.repo / "3.txt").exists()
    return desk.run_id()


def hash_files(desk: Desk) -> dict[str, str]:
    """Hash the store's files, without the index that every reader rebuilds."""
    return {
        path.name: sha256(path.read_bytes()).hexdigest()
        for path in desk.home.glob("podium.db*")
        if path.is_file() and not path.name.endswith("-shm")
    }


def flip_byte(path: Path, place: float) -> None:
    data = bytearray(path.read_bytes())
    data[int(len(data) * place)] ^= 0x40
    path.write_bytes(data)


@pytest.mark.parametrize(
    "place", [0.3, 0.8, *(pytest.param(place, marks=pytest.mark.slow) for place in (0.01, 0.5, 0.7))]
)
def test_a_run_that_lost_entries_is_not_resumed_and_its_files_are_left_as_they_are(
    desk: Desk, killed_run: str, place: float
) -> None:
    flip_byte(desk.home / "podium.db-wal", place)
    before = hash_files(desk)

    verified, resumed = desk.run_podium("verify", killed_run), desk.run_podium("resume", killed_run)

    assert (verified.returncode, resumed.returncode) == (8, 8)
    assert "damaged" in verified.stdout + verified.stderr
    assert "damaged" in resumed.stderr
    assert hash_files(desk) == before


def test_a_person_can_accept_the_loss_and_the_timeline_says_so(desk: Desk, killed_run: str) -> None:
    flip_byte(desk.home / "podium.db-wal", 0.8)
    assert f"podium resume {killed_run} --accept-loss" in desk.run_podium("resume", killed_run).stderr

    with desk.start_podium("resume", killed_run, "--accept-loss", "--permissions", "accept-edits") as process:
        wait_for(process.stderr, "had been lost")
        process.kill()
        process.wait()

    assert desk.run_podium("verify", killed_run).returncode == 0
    assert "noticed" in desk.kinds(killed_run)


def test_loss_is_accepted_for_one_run_at_a_time(desk: Desk) -> None:
    said = desk.invoke("resume", "--accept-loss")

    assert said.exit_code == 2
    assert "--accept-loss needs RUN" in said.stderr


def test_a_run_restored_without_its_progress_file_is_resumed_with_a_notice(desk: Desk, killed_run: str) -> None:
    shutil.rmtree(desk.home / "podium.db-progress")

    with desk.start_podium("resume", killed_run) as process:
        wait_for(process.stderr, "because the store was restored from a backup")
        process.kill()


def test_verify_says_that_the_progress_file_is_missing_and_what_it_cannot_find(desk: Desk, killed_run: str) -> None:
    before = desk.invoke("verify", killed_run)
    shutil.rmtree(desk.home / "podium.db-progress")
    chain = bytes(32)
    with closing(sqlite3.connect(desk.store)) as store, store:
        store.execute("DROP TRIGGER entry_stays")
        for seq, line in store.execute("SELECT seq, line FROM entry WHERE run = ? ORDER BY seq", (killed_run,)):
            changed = line.replace(b"go", b"no", 1)
            chain = sha256(chain + changed).digest()
            store.execute("UPDATE entry SET line = ?, hash = ? WHERE seq = ?", (changed, chain, seq))

    after, fields = desk.invoke("verify", killed_run), desk.invoke("verify", killed_run, "--json").stdout

    assert "progress file" not in before.stdout
    assert "note: the progress file of this run is missing" in after.stdout
    assert "this finds accidental damage" in after.stdout
    assert json.loads(fields)["note"].startswith("the progress file of this run is missing")


def test_an_altered_run_is_not_resumed_but_can_be_stopped(desk: Desk, killed_run: str) -> None:
    connection = sqlite3.connect(desk.store)
    connection.execute("DROP TRIGGER entry_stays")
    connection.execute("UPDATE entry SET line = CAST(replace(line, '1.txt', '9.txt') AS BLOB)")
    connection.commit()
    connection.close()

    said = desk.run_podium("resume", killed_run)

    assert said.returncode == 8
    assert killed_run in said.stderr
    assert desk.run_podium("stop", killed_run).returncode == 0
    assert json.loads(desk.run_podium("show", killed_run, "--json").stdout)["state"] == "cancelled"


def test_resume_says_that_the_database_was_deleted(desk: Desk, killed_run: str) -> None:
    for path in (desk.store, desk.store.with_name("podium.db-wal"), desk.store.with_name("podium.db-shm")):
        path.unlink(missing_ok=True)

    named, unnamed = desk.run_podium("resume", killed_run), desk.run_podium("resume")
    shutil.rmtree(desk.home / "podium.db-progress")
    unknown = desk.run_podium("resume", killed_run)

    for said in (named, unnamed):
        assert said.returncode == 8
        assert f"the store {desk.store} is missing, although runs were written to it ({killed_run})" in said.stderr
    assert unknown.returncode == 2
    assert f"there is no run {killed_run!r}: the store {desk.store} does not exist" in unknown.stderr


@pytest.mark.parametrize("deletes_home", [False, True])
def test_a_run_whose_store_was_deleted_stops_before_its_next_action(desk: Desk, deletes_home: bool) -> None:
    desk.write_agent(
        "writer", write_file("1.txt"), structs.replace(write_file("2.txt"), delay=1.0), "done", tools=["write_file"]
    )
    with desk.start_podium("run", "writer", "go", "--permissions", "accept-edits") as process:
        wait_for(process.stderr, "1.txt")
        if deletes_home:
            shutil.rmtree(desk.home)
        else:
            for path in desk.home.glob("podium.db*"):
                path.unlink() if path.is_file() else shutil.rmtree(path)
        _, said = read_until_exit(process)

    assert process.returncode == 8, said
    assert "was deleted or replaced" in said
    assert not (desk.repo / "2.txt").exists()
