"""Retention: old runs that have ended are archived and removed, and nothing that is still needed is."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from podium.core.plan_state import store_artifact
from podium.core.scope import Scope
from podium.core.timeline import Timeline
from podium.runs.assembly.run_assembly import StoreLinks
from podium.runs.run_retention import ENDED_STATES, archive_and_remove, make_archive_path, select_removable
from podium.store.entry_feed import EntryFeed
from podium.store.entry_index import EntryIndex
from podium.store.group_rows import Groups
from podium.store.progress_files import Progress, list_recorded_runs, read_progress, record_progress
from podium.store.reader import StoreReader
from podium.store.run_store import RunStore
from podium.store.store_check import check_store
from podium.store.store_connection import open_connection
from podium.store.store_export import remove_run
from podium.store.store_file import import_store
from podium.store.worktree_ledger import Ledger
from podium.values.agent import Agent
from podium.values.event import DecisionCommitted, DecisionProposed, Event, RunEnded, RunPaused, RunStarted, VoteClosed
from podium.values.request import Outcome, Request
from podium.values.store_address import StoreAddress, format_store_setting
from podium.values.worker_task import WorkerTask
from podium.views.entry_filter import EntryFilter

LATER = 1e12
"""A time after the end of every run."""


async def record_run(
    store: StoreAddress,
    run: str,
    *events: Event,
    outcome: Outcome | None = "succeeded",
    artifact: str = "",
    **fields: object,
) -> None:
    """Record a run with these events, which ends unless it has no outcome."""
    async with RunStore(store) as runs:
        lease = runs.begin_run(run)
        timeline = Timeline(run, lease, links=StoreLinks(runs, lease))
        started = RunStarted(agent="x", request=Request(text="x"), agents=(Agent(name="x"),), **fields)  # type: ignore[arg-type]  # any field
        ended = () if outcome is None else (RunEnded(outcome=outcome),)
        timeline.append(started, scope="")
        if artifact:
            store_artifact(Scope(timeline, "x", operation="x", digest="d"), "document", "a.md", artifact)
        for event in (*events, *ended):
            timeline.append(event, scope="")
        await timeline.wait_written()
        runs.release_run(lease)


def make_decision(id: str, *, supersedes: str = "") -> tuple[Event, ...]:
    return (
        DecisionProposed(id=id, topic="t", options=("x", "y"), supersedes=supersedes),
        VoteClosed(decision=id, why="decided"),
        DecisionCommitted(decision=id, option="x", how="majority"),
    )


def list_removable(store: StoreAddress, *, before: float = LATER, states: tuple[str, ...] = ENDED_STATES) -> set[str]:
    return {run.id for run in select_removable(store, before=before, states=states)}


def count_rows(store: StoreAddress, table: str) -> int:
    with closing(open_connection(store, create=False)) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


@pytest.fixture
def store(address: StoreAddress) -> StoreAddress:
    return address


async def test_only_runs_that_have_ended_are_removable(store: StoreAddress) -> None:
    await record_run(store, "good")
    await record_run(store, "bad", outcome="failed")
    await record_run(store, "paused", RunPaused(), outcome=None)
    await record_run(store, "left", outcome=None)

    assert list_removable(store) == {"good", "bad"}
    assert list_removable(store, states=("failed",)) == {"bad"}
    assert list_removable(store, before=time.time() - 3600) == set()


async def test_a_run_stays_while_a_run_that_stays_refers_to_it(store: StoreAddress) -> None:
    await record_run(store, "origin")
    await record_run(store, "fork", outcome=None, forked_from="origin@1")
    await record_run(store, "earlier")
    await record_run(store, "chat", outcome=None, after="earlier")
    await record_run(store, "parent", outcome=None)
    await record_run(store, "worker", errand=WorkerTask(root="/r", path="/r", parent="parent"))
    await record_run(store, "grandchild", errand=WorkerTask(root="/r", path="/r", parent="worker"))
    await record_run(store, "old")
    await record_run(store, "fork of old", forked_from="old@1")

    assert list_removable(store) == {"old", "fork of old"}


async def test_runs_with_decisions_in_force_pins_or_worktrees_stay(store: StoreAddress) -> None:
    await record_run(store, "decided", *make_decision("d1"))
    await record_run(store, "proposed", DecisionProposed(id="d2", topic="t", options=("x", "y")))
    await record_run(store, "pinned")
    await record_run(store, "checked out")
    with Groups(store) as groups:
        groups.pin(groups.load_arrangement().get_listed_run("pinned"), is_pinned=True)
    await Ledger(store).record_new(
        Path("/w"), repository=Path("/r/.git"), branch="f", base="b", run="checked out", is_new_branch=True
    )

    assert list_removable(store) == {"proposed"}


async def test_a_decision_that_was_replaced_does_not_come_into_force_again(store: StoreAddress) -> None:
    await record_run(store, "first", *make_decision("d1"), outcome="failed")
    await record_run(store, "second", *make_decision("d2", supersedes="d1"))
    await record_run(store, "third", *make_decision("d3", supersedes="d2"))

    assert list_removable(store, states=("succeeded",)) == set()
    assert list_removable(store) == {"first", "second"}


async def test_a_removed_run_leaves_nothing_and_can_be_restored(store: StoreAddress, tmp_path: Path) -> None:
    await record_run(store, "one", artifact="shared")
    await record_run(store, "two", artifact="shared")
    await record_run(store, "three", artifact="own")
    if isinstance(store, Path):
        record_progress(store, "three", Progress(1, b"\0" * 32))
    with EntryIndex(store) as index:
        list(index.iter_newest_lines(EntryFilter()))
    with Groups(store) as groups:
        groups.load_arrangement()
    with StoreReader(store) as reader:
        rows = reader.read_rows("three")

    archive_and_remove(store, "three", tmp_path / "archive")
    archive_and_remove(store, "one", None)

    tables = ("run", "placement", "indexed_run", "artifact")
    assert {table: count_rows(store, table) for table in tables} == dict.fromkeys(tables, 1)
    assert list_recorded_runs(store) == []
    assert check_store(store).problems == []
    assert check_store(store).notes == []
    assert import_store(store, make_archive_path(tmp_path / "archive", "three")).added == {"three"}
    with StoreReader(store) as reader:
        assert reader.read_rows("three") == rows


async def test_a_run_that_has_not_ended_is_not_removed(store: StoreAddress) -> None:
    await record_run(store, "left", outcome=None)
    if isinstance(store, Path):
        record_progress(store, "left", Progress(1, b"x" * 32))

    archive_and_remove(store, "left", None)

    assert count_rows(store, "entry") == 1
    if isinstance(store, Path):
        assert read_progress(store, "left") == Progress(1, b"x" * 32)


KILL_AT = """
import os, signal, sys
from pathlib import Path
import podium.store.store_export as removal
from podium.runs.run_retention import archive_and_remove
from podium.values.store_address import is_postgres_url, make_postgres_address

setting, folder = sys.argv[1], Path(sys.argv[3])
store = make_postgres_address(setting, folder) if is_postgres_url(setting) else Path(setting)
left = int(sys.argv[2])
delete = removal._delete_rows

def delete_and_die(connection, run, worktrees):
    class Counting:
        def __getattr__(self, name):
            return getattr(connection, name)
        def execute(self, *given):
            global left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return connection.execute(*given)
    return delete(Counting(), run, worktrees)

removal._delete_rows = delete_and_die
archive_and_remove(store, "one", folder)
"""


@pytest.mark.parametrize("statements", [0, 3, 7])
async def test_a_process_that_is_killed_leaves_the_run_whole(
    store: StoreAddress, statements: int, tmp_path: Path
) -> None:
    await record_run(store, "one", artifact="own")

    done = subprocess.run(
        [sys.executable, "-c", KILL_AT, format_store_setting(store), str(statements), str(tmp_path / "archive")],
        timeout=60,
        check=False,
    )

    assert done.returncode == -9
    assert check_store(store).problems == []
    assert check_store(store).notes == []
    assert (count_rows(store, "run"), count_rows(store, "entry"), count_rows(store, "artifact")) == (1, 3, 1)
    archive_and_remove(store, "one", tmp_path / "archive")
    assert count_rows(store, "entry") == 0


async def test_a_feed_has_every_entry_that_is_written_after_the_newest_run_was_removed(store: StoreAddress) -> None:
    await record_run(store, "old")
    await record_run(store, "first")
    with EntryFeed(store) as feed:
        end = feed.find_end()
        assert end is not None
        assert remove_run(store, "first")
        assert feed.read_after(end.position, 10) == []

        await record_run(store, "second")
        new = feed.read_after(end.position, 10)
        assert remove_run(store, "second")
        await record_run(store, "third")
        newest = feed.read_after(new[0].position, 10)

        assert [row.cursor for row in new] == ["second:1", "second:2"]
        assert [row.cursor for row in newest] == ["third:1", "third:2"]
        assert [row.cursor for row in feed.read_after(new[-1].position, 10)] == ["third:1", "third:2"]
        positions = [end.position, *(row.position for row in (*new, *newest))]
        assert positions == sorted(set(positions))


async def test_another_feed_finds_the_same_positions_after_runs_were_removed(store: StoreAddress) -> None:
    for run in ("old", "gone", "kept", "last"):
        await record_run(store, run)
    with EntryFeed(store) as feed:
        before = {row.cursor: row.position for row in feed.read_after(0, 10)}
    for run in ("gone", "last"):
        assert remove_run(store, run)
    await record_run(store, "new")

    with EntryFeed(store) as feed:
        rows = feed.read_after(0, 10)
        positions = [row.position for row in rows]
        assert [row.run for row in rows] == ["old", "old", "kept", "kept", "new", "new"]
        assert positions == sorted(set(positions))
        assert positions[-2] > max(before.values())
        assert positions[:-2] == [before[row.cursor] for row in rows[:-2]]
        assert positions == [feed.find_position(row.cursor) for row in rows]
        assert feed.find_end() == rows[-1]
        assert feed.read_before(rows[-1].position + 1, 10, ["run_ended"]) == [rows[5], rows[3], rows[1]]
        assert feed.read_before(before["last:2"], 10, ["run_ended"]) == [rows[3], rows[1]]
