"""`podium snapshot`: a snapshot by hand, from which a run can be forked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from podium.store.reader import StoreReader
from podium.testing import calls as call
from podium.testing import make_repository, read_events
from podium.testing import run_git as git
from podium.values.event import RunStarted, SnapshotTaken

from .conftest import SLOW, Desk, wait_for


@pytest.fixture
def paused_run(desk: Desk) -> str:
    """A run in a repository that wrote one file, and is paused because its command needs permission."""
    write, command = call("write_file", path="one.txt", content="1\n"), call("bash", command="touch two.txt")
    desk.write_agent("hand", write, command, "done", tools=["Write", "Bash"])
    make_repository(desk.repo, {})
    (desk.home / "config.yaml").write_text("permissions: {allow: [Write]}\n")
    assert desk.invoke("run", "hand", "go", "--park").exit_code == 3
    return desk.run_id()


def read_snapshots(desk: Desk, run: str) -> list[SnapshotTaken]:
    return read_events(desk.store, run, SnapshotTaken)


def read_state(desk: Desk, run: str) -> str:
    return str(json.loads(desk.invoke("show", run, "--json").stdout)["state"])


def test_a_paused_run_is_forked_from_a_snapshot_that_was_taken_by_hand(desk: Desk, paused_run: str) -> None:
    taken = desk.invoke("snapshot", paused_run[:6], "--name", "half")
    assert (taken.exit_code, taken.stdout) == (0, "half\n"), taken.stderr
    assert read_state(desk, paused_run) == "paused"
    (desk.repo / "one.txt").write_text("changed later\n")

    forked = desk.invoke("fork", paused_run, "--at", "half", "--park")

    assert "notice: no snapshot was taken" not in forked.stderr
    with StoreReader(desk.store) as reader:
        started = reader.read_entries(desk.run_id())[0].event
    assert isinstance(started, RunStarted)
    assert (Path(started.repo) / "one.txt").read_text() == "1\n"
    assert not (Path(started.repo) / "two.txt").exists()
    assert [desk.invoke("verify", run).exit_code for run in (paused_run, desk.run_id())] == [0, 0]


def test_the_commit_of_a_snapshot_is_kept_and_nothing_in_the_checkout_changes(desk: Desk, paused_run: str) -> None:
    before = git(desk.repo, "status", "--porcelain")

    desk.invoke("snapshot", paused_run)

    [snapshot] = read_snapshots(desk, paused_run)
    assert snapshot.name == "manual-1"
    assert git(desk.repo, "show", f"{snapshot.commits['']}:one.txt") == "1\n"
    refs = git(desk.repo, "for-each-ref", "--format=%(objectname)", f"refs/podium/snapshots/{paused_run}").split()
    assert refs == [snapshot.commits[""]]
    assert git(desk.repo, "status", "--porcelain") == before


def test_a_run_continues_after_a_snapshot(desk: Desk, paused_run: str) -> None:
    desk.invoke("snapshot", paused_run)
    desk.invoke("snapshot", paused_run)
    [request] = json.loads(desk.invoke("approvals", "--json").stdout)["waiting"]

    desk.invoke("approve", request["id"])
    resumed = desk.invoke("resume", paused_run)

    assert resumed.stdout == "done\n", resumed.stderr
    assert [one.name for one in read_snapshots(desk, paused_run)] == ["manual-1", "manual-2"]
    assert desk.invoke("verify", paused_run).exit_code == 0


def test_an_interrupted_run_stays_resumable_after_a_snapshot(desk: Desk) -> None:
    desk.write_agent("lead", "the answer", advisors=["helper"])
    desk.write_agent("helper", "some advice")
    desk.run_podium("run", "lead", "do it", PODIUM_FAULT="8")
    run = desk.run_id()

    said = desk.invoke("snapshot", run)

    assert said.exit_code == 0, said.stderr
    assert "contains only the position on the timeline" in said.stderr  # the folder is not a usable repository
    assert read_state(desk, run) == "resumable"
    assert desk.invoke("resume", run).stdout == "the answer\n"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("half", "run {run} already has a snapshot 'half'"),
        ("12", "'12' is a number, which --at would interpret as an entry number"),
        ("a\nb", "a name must have 1 to 64 printable characters"),
        ("", "a name must have 1 to 64 printable characters"),
    ],
)
def test_a_name_that_fork_could_not_find_is_refused(desk: Desk, paused_run: str, name: str, why: str) -> None:
    desk.invoke("snapshot", paused_run, "--name", "half")
    kinds = desk.kinds(paused_run)

    said = desk.invoke("snapshot", paused_run, "--name", name)

    assert said.exit_code == 2
    assert why.format(run=paused_run) in said.stderr
    assert desk.kinds(paused_run) == kinds


def test_a_run_that_has_ended_has_no_new_snapshots(desk: Desk) -> None:
    desk.write_agent("a", "x")
    desk.invoke("run", "a", "go")

    said = desk.invoke("snapshot", desk.run_id())

    assert said.exit_code == 2
    assert f"run {desk.run_id()} has ended (succeeded), so nothing can be added to its timeline" in said.stderr


def test_a_running_run_has_to_be_paused_first(desk: Desk) -> None:
    desk.write_agent("slow", SLOW)
    with desk.start_podium("run", "slow", "do it") as process:
        wait_for(process.stderr, "slow: calling")
        run = desk.run_id()

        said = desk.invoke("snapshot", run)

    assert said.exit_code == 2
    assert f"its files may change at any time; pause it first with: podium pause {run}" in said.stderr
