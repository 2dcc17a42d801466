"""The index of entries: what is found through it, and when it is written."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from podium.core.scope import Scope
from podium.core.timeline import Timeline
from podium.store.entry_index import BATCH, PAGE, EntryIndex, build_newest_query
from podium.store.run_store import RunStore
from podium.testing import read_entries
from podium.values.agent import Agent
from podium.values.event import Entry, Noticed, PlanStepStarted, RunStarted, TurnEnded, TurnStarted, decode_entry
from podium.values.request import Request
from podium.values.store_address import StoreAddress
from podium.views.entry_filter import EntryFilter

FILTERS = [
    EntryFilter(),
    EntryFilter(agents=("ada",)),
    EntryFilter(agents=("ada", "lead")),
    EntryFilter(steps=("s1",)),
    EntryFilter(steps=("s1", "s2"), kinds=("turn_ended",)),
    EntryFilter(kinds=("plan_step_started", "turn_started")),
    EntryFilter(agents=("nobody",)),
]


@pytest.fixture
def path(address: StoreAddress) -> StoreAddress:
    return address


@pytest.fixture
def sqlite_path(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


def record_work(timeline: Timeline, *, shared: int = 0) -> None:
    """Record a team's work on two plan steps: eleven entries."""
    started = RunStarted(agent="lead", request=Request(text="go"), agents=(Agent(name="lead"),), shared=shared)
    timeline.append(started, scope="")
    lead = Scope(timeline, "lead", operation="lead", digest="d")
    for step, owner in (("s1", "ada"), ("s2", "bob")):
        place = lead.child(f"plan_step:{step}")
        place.record(PlanStepStarted(step=step, owner=owner))
        path = f"{place.path}/member:{owner}#1"
        turn = Scope(timeline, f"{path}/turn#1", operation=path, digest="d")
        turn.record(TurnStarted(agent=owner, engine="scripted", prompt="p"))
        turn.record(Noticed(text=owner))
        turn.record_outcome(TurnEnded(outcome="succeeded", text="done"))
    lead.record(Noticed(text="end"))
    timeline.append(Noticed(text="over"), scope="")


async def write_runs(path: StoreAddress, *runs: str) -> None:
    async with RunStore(path) as store:
        for run in runs:
            timeline = Timeline(run, store.begin_run(run))
            record_work(timeline)
            await timeline.wait_written()


def find(path: StoreAddress, run: str, wanted: EntryFilter, *, after: int = 0) -> list[Entry]:
    with EntryIndex(path) as index:
        return list(map(decode_entry, index.find_lines(run, wanted, after=after)))


def find_newest(path: StoreAddress, wanted: EntryFilter) -> list[Entry]:
    with EntryIndex(path) as index:
        return [decode_entry(line) for _, line in index.iter_newest_lines(wanted)]


@pytest.mark.parametrize("wanted", FILTERS, ids=str)
async def test_the_index_finds_what_the_filter_accepts(path: StoreAddress, wanted: EntryFilter) -> None:
    await write_runs(path, "a", "b")

    found = find(path, "a", wanted)

    assert found == [entry for entry in read_entries(path, "a") if wanted.accepts(entry)]
    everywhere = [entry for run in ("a", "b") for entry in read_entries(path, run) if wanted.accepts(entry)]
    assert find_newest(path, wanted) == sorted(everywhere, key=lambda one: (one.at, one.run, one.seq), reverse=True)


async def test_entries_are_found_from_a_time_and_after_a_position(path: StoreAddress) -> None:
    await write_runs(path, "a")
    entries = read_entries(path, "a")
    since = EntryFilter(since=entries[6].at)

    assert find(path, "a", since) == [entry for entry in entries if entry.at >= entries[6].at]
    assert find(path, "a", EntryFilter(kinds=("noticed",)), after=4) == [
        entry for entry in entries[4:] if isinstance(entry.event, Noticed)
    ]
    assert find_newest(path, since)[-1].at == entries[6].at


async def test_entries_that_are_written_later_are_found_at_the_next_query(path: StoreAddress) -> None:
    async with RunStore(path) as store:
        timeline = Timeline("a", store.begin_run("a"))
        for number in range(3):
            timeline.append(Noticed(text=str(number)), scope="")
            await timeline.wait_written()
            assert len(find(path, "a", EntryFilter(kinds=("noticed",)))) == number + 1


async def test_writing_entries_does_not_touch_the_index(sqlite_path: Path) -> None:
    await write_runs(sqlite_path, "a")

    with closing(sqlite3.connect(sqlite_path)) as connection:
        assert connection.execute("SELECT count(*) FROM indexed_entry").fetchone() == (0,)
        indexes = connection.execute("SELECT name FROM sqlite_master WHERE type = 'index' AND tbl_name = 'entry'")
        assert {name for (name,) in indexes} == {"sqlite_autoindex_entry_1", "entry_decision"}


async def test_a_long_run_is_indexed_in_several_transactions_and_listed_in_pages(path: StoreAddress) -> None:
    count = BATCH + PAGE + 5
    async with RunStore(path) as store:
        timeline = Timeline("a", store.begin_run("a"))
        for number in range(count):
            timeline.append(Noticed(text=str(number)), scope="")
        await timeline.wait_written()

    newest = find_newest(path, EntryFilter(kinds=("noticed",)))

    assert [entry.seq for entry in newest] == list(range(count, 0, -1))
    assert len(find(path, "a", EntryFilter(kinds=("noticed",)))) == count


async def test_entries_that_a_fork_shares_are_listed_once_in_all_runs(path: StoreAddress) -> None:
    await write_runs(path, "a")
    async with RunStore(path) as store:
        fork = Timeline("fork", store.begin_run("fork"))
        record_work(fork, shared=10)
        await fork.wait_written()

    turns = find_newest(path, EntryFilter(kinds=("turn_ended",)))

    assert [entry.run for entry in turns] == ["a", "a"]
    assert len(find(path, "fork", EntryFilter(kinds=("turn_ended",)))) == 2
    assert [entry.run for entry in find_newest(path, EntryFilter(kinds=("run_started",)))] == ["fork", "a"]


@pytest.mark.parametrize(
    ("wanted", "index"),
    [
        (EntryFilter(kinds=("turn_ended",), since=1.0), "indexed_entry_kind (kind=? AND at>?)"),
        (EntryFilter(agents=("ada",)), "indexed_entry_agent (agent=?)"),
        (EntryFilter(steps=("s1",), since=1.0), "indexed_entry_step (step=? AND at>?)"),
        (EntryFilter(since=1.0), "indexed_entry_at (at>?)"),
        (EntryFilter(), "indexed_entry_at"),
    ],
    ids=str,
)
async def test_a_query_over_all_runs_reads_only_what_it_returns(
    sqlite_path: Path, wanted: EntryFilter, index: str
) -> None:
    await write_runs(sqlite_path, "a")
    query, values = build_newest_query(wanted)

    with closing(sqlite3.connect(sqlite_path)) as connection:
        plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {query}", values)]

    assert index in plan[0]
    assert not any("TEMP B-TREE" in step for step in plan)


async def test_a_damaged_entry_is_returned_only_where_its_kind_is_wanted(sqlite_path: Path) -> None:
    await write_runs(sqlite_path, "a")
    with closing(sqlite3.connect(sqlite_path)) as connection, connection:
        connection.execute("DROP TRIGGER entry_stays")
        connection.execute("UPDATE entry SET line = X'7B' WHERE kind = 'turn_started' AND seq = 3")

    assert len(find(sqlite_path, "a", EntryFilter(kinds=("turn_ended",)))) == 2
    with EntryIndex(sqlite_path) as index:
        assert index.find_lines("a", EntryFilter(kinds=("turn_started",)))[0] == b"{"


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to mount a read-only file system")
async def test_entries_on_a_read_only_file_system_are_found(sqlite_path: Path, tmp_path: Path) -> None:
    await write_runs(sqlite_path, "a")
    program = (
        "import pathlib, sys\nfrom podium.store.entry_index import EntryIndex\n"
        "from podium.views.entry_filter import EntryFilter\nwanted = EntryFilter(kinds=('turn_ended',))\n"
        "with EntryIndex(pathlib.Path(sys.argv[1])) as index:\n"
        "    print(len(index.find_lines('a', wanted)), len(list(index.iter_newest_lines(wanted))))\n"
    )
    script = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && exec "$2" -c "$3" "$4"'
    arguments = ["sh", str(tmp_path), sys.executable, program, str(sqlite_path)]

    said = subprocess.run(["unshare", "--mount", "sh", "-c", script, *arguments], capture_output=True, text=True)

    assert said.stdout == "2 2\n", said.stderr


async def test_entries_are_found_while_another_process_keeps_the_store_locked(sqlite_path: Path) -> None:
    await write_runs(sqlite_path, "a")
    wanted = EntryFilter(kinds=("turn_ended",))
    with closing(sqlite3.connect(sqlite_path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")

        assert len(find(sqlite_path, "a", wanted)) == 2

    assert len(find(sqlite_path, "a", wanted)) == 2
