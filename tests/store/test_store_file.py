"""Store files: a store is exported and imported without loss, and a damaged file changes nothing."""

from __future__ import annotations

import gzip
import socket
from contextlib import closing
from pathlib import Path

import pytest

from podium.core.plan_state import store_artifact
from podium.core.scope import Scope
from podium.core.timeline import Timeline
from podium.runs.assembly.run_assembly import StoreLinks
from podium.store.group_rows import Groups
from podium.store.issue_rows import IssueClaim, IssueClaims
from podium.store.mailbox import post_to_mailbox
from podium.store.progress_files import read_progress
from podium.store.reader import StoreReader
from podium.store.run_store import RunStore
from podium.store.schedule_rows import Schedule, Schedules
from podium.store.store_clients import claim_command_key, store_command_reply
from podium.store.store_connection import open_connection
from podium.store.store_export import archive_run, export_store
from podium.store.store_file import import_store, read_store_file
from podium.store.worktree_ledger import Ledger
from podium.values.agent import Agent
from podium.values.errors import Mistake, RunHeld, StoreCorrupt
from podium.values.event import DecisionProposed, MessageReceived, RunEnded, RunStarted
from podium.values.request import Request
from podium.values.store_address import PostgresAddress, StoreAddress

from .conftest import empty_store
from .test_group_rows import record_runs


async def fill_store(store: StoreAddress) -> None:
    """Put something into every table: runs of several repositories, a worker, mail, files, groups and worktrees."""
    await record_runs(store, "a1", "a2", repo="/work/shop")
    await record_runs(store, "b1", repo="/work/bank", is_over=False)
    await record_runs(store, "w1", repo="/work/shop", parent="a1")
    async with RunStore(store) as runs:
        lease = runs.begin_run("c1")
        timeline = Timeline("c1", lease, links=StoreLinks(runs, lease))
        timeline.append(RunStarted(agent="x", request=Request(text="ä\0"), agents=(Agent(name="x"),)), scope="")
        place = Scope(timeline, "x", operation="x", digest="d")
        store_artifact(place, "document", "plan.md", "the plan", author="x")
        timeline.append(RunEnded(outcome="failed"), scope="")
        await timeline.wait_written()
    post_to_mailbox(store, "b1", MessageReceived(id="m1", text="hello", to="alone"))
    claim_command_key(store, "key", "digest")
    store_command_reply(store, "key", b"\0\xff")
    schedule = Schedule(
        id="s1", cron="0 9 * * *", zone="UTC", agent="x", request="ä", root="/shop", host="h", created=1.5, next_at=2.5
    )
    Schedules(store).add(schedule)
    IssueClaims(store).add(
        IssueClaim(source="github:o/r", issue="7", token="t", claimed=1.5, root="/shop", title="ä", body="b")
    )
    with Groups(store) as groups:
        now = groups.load_arrangement()
        groups.rename(now.find_group("shop"), "The shop")
        groups.pin(now.get_listed_run("b1"), is_pinned=True)
        bank = now.group_of("b1")
        assert bank is not None
        groups.delete(bank)
        groups.archive(groups.load_arrangement().find_group("default"), is_archived=True)
    with closing(open_connection(store, create=False)) as connection:
        connection.execute(
            "INSERT INTO attachment (run, message, digest, data) VALUES (?, ?, ?, ?)", ("b1", "m1", "d", b"\0\1\xff")
        )
    await Ledger(store).record_new(
        Path("/w"), repository=Path("/r/.git"), branch="f", base="b" * 40, run="w1", is_new_branch=True
    )


def read_content(path: Path) -> list[str]:
    """Return the lines of a store file, in an order that does not depend on how a database compares text."""
    return sorted(gzip.decompress(path.read_bytes()).decode().splitlines()[:-1])


def copy_store(source: StoreAddress, target: StoreAddress, path: Path) -> None:
    export_store(source, path, is_skipping_running=False)
    import_store(target, path)


@pytest.fixture
def postgres(store_database: str, tmp_path: Path) -> PostgresAddress:
    store = PostgresAddress(store_database, tmp_path / "runtime")
    empty_store(store)
    return store


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return tmp_path / "copy.podium"


async def test_a_store_goes_to_postgresql_and_back_without_loss(postgres: PostgresAddress, tmp_path: Path) -> None:
    first, last = tmp_path / "first.db", tmp_path / "last.db"
    await fill_store(first)

    copy_store(first, postgres, tmp_path / "1")
    copy_store(postgres, last, tmp_path / "2")
    export_store(last, tmp_path / "3", is_skipping_running=False)

    assert read_content(tmp_path / "1") == read_content(tmp_path / "2") == read_content(tmp_path / "3")
    tables = {row.table for row in read_store_file(tmp_path / "1")}
    assert tables == {
        *("run", "last_group", "run_group", "placement", "worker", "worktree", "command_key", "entry", "mail"),
        *("attachment", "artifact", "schedule", "issue_claim"),
    }
    with StoreReader(first) as before, StoreReader(last) as after:
        assert {run: before.read_rows(run) for run in before.list_run_ids()} == {
            run: after.read_rows(run) for run in after.list_run_ids()
        }


async def test_decisions_keep_the_order_in_which_they_were_written(
    address: StoreAddress, copy: Path, tmp_path: Path
) -> None:
    async with RunStore(address) as store:
        one, other = (Timeline(run, store.begin_run(run)) for run in ("z", "a"))
        for number, timeline in enumerate((one, other, one)):
            timeline.append(DecisionProposed(id=f"d{number}", topic="t", options=("x",)), scope="")
            await timeline.wait_written()

    copy_store(address, tmp_path / "t.db", copy)

    with StoreReader(tmp_path / "t.db") as reader:
        assert [entry.run for entry in reader.read_decision_entries()] == ["z", "a", "z"]


async def test_an_imported_run_that_has_not_ended_has_a_progress_file(tmp_path: Path, copy: Path) -> None:
    await record_runs(tmp_path / "s.db", "open", is_over=False)
    copy_store(tmp_path / "s.db", tmp_path / "t.db", copy)

    progress = read_progress(tmp_path / "t.db", "open")

    assert progress is not None
    assert progress.seq == 1


async def test_runs_of_a_live_process_are_refused_or_left_out(address: StoreAddress, copy: Path) -> None:
    await record_runs(address, "over")
    async with RunStore(address) as store:
        timeline = Timeline("busy", store.begin_run("busy"))
        timeline.append(RunStarted(agent="x", request=Request(text="x"), agents=(Agent(name="x"),)), scope="")
        await timeline.wait_written()

        with pytest.raises(RunHeld, match="run busy is in use"):
            export_store(address, copy, is_skipping_running=False)
        assert not copy.exists()
        assert export_store(address, copy, is_skipping_running=True) == ["busy"]

    runs = {row.values[0] for row in read_store_file(copy) if row.table in ("run", "entry")}
    assert runs == {"over"}


async def test_an_import_adds_only_the_runs_that_are_missing(address: StoreAddress, copy: Path, tmp_path: Path) -> None:
    source = tmp_path / "source.db"
    await record_runs(source, "both", "new", repo="/work/shop")
    with Groups(source) as groups:
        groups.rename(groups.load_arrangement().find_group("shop"), "Shop of the source")
    await record_runs(address, "own", repo="/work/bank")
    await record_runs(address, "both", repo="/work/shop", is_over=False)
    with Groups(address) as groups:
        groups.load_arrangement()
    export_store(source, copy, is_skipping_running=False)

    report = import_store(address, copy)

    assert (report.added, report.existing) == ({"new"}, {"both"})
    with StoreReader(address) as reader:
        assert {run: len(reader.read_rows(run)) for run in reader.list_run_ids()} == {"own": 2, "both": 1, "new": 2}
    with Groups(address) as groups:
        now = groups.load_arrangement()
    assert now.group_of("new") == now.group_of("both") != now.group_of("own")
    assert import_store(address, copy).added == set()


@pytest.mark.parametrize("cut", [0.0, 0.3, 0.7, 0.99])
async def test_a_cut_file_is_refused_and_nothing_is_imported(tmp_path: Path, copy: Path, cut: float) -> None:
    await fill_store(tmp_path / "s.db")
    export_store(tmp_path / "s.db", copy, is_skipping_running=False)
    data = copy.read_bytes()
    copy.write_bytes(data[: int(len(data) * cut)])

    with pytest.raises((StoreCorrupt, Mistake)):
        import_store(tmp_path / "t.db", copy)

    assert not (tmp_path / "t.db").exists()


def drop_row(lines: list[bytes]) -> list[bytes]:
    return [lines[0], *lines[2:]]


def drop_end(lines: list[bytes]) -> list[bytes]:
    return lines[:-1]


def repeat_end(lines: list[bytes]) -> list[bytes]:
    return [*lines, lines[-1]]


def change_row(lines: list[bytes]) -> list[bytes]:
    return [line.replace(b"run_ended", b"run_paused") for line in lines]


@pytest.mark.parametrize("change", [drop_row, drop_end, repeat_end, change_row])
async def test_a_changed_file_is_refused(tmp_path: Path, copy: Path, change: object) -> None:
    await fill_store(tmp_path / "s.db")
    export_store(tmp_path / "s.db", copy, is_skipping_running=False)
    lines = gzip.decompress(copy.read_bytes()).splitlines(keepends=True)
    assert callable(change)
    copy.write_bytes(gzip.compress(b"".join(change(lines))))

    with pytest.raises(StoreCorrupt, match="incomplete or was modified"):
        import_store(tmp_path / "t.db", copy)

    assert not (tmp_path / "t.db").exists()


def test_another_file_and_a_newer_format_are_refused(tmp_path: Path, copy: Path) -> None:
    copy.write_bytes(gzip.compress(b'{"other": 1}\n'))
    with pytest.raises(Mistake, match="is not a store file"):
        import_store(tmp_path / "t.db", copy)
    copy.write_bytes(gzip.compress(b'{"podium_store":9,"release":"99.0","tables":{}}\n'))
    with pytest.raises(Mistake, match=r"written by Podium 99\.0"):
        import_store(tmp_path / "t.db", copy)


async def test_worktrees_of_other_machines_are_not_taken_for_own_ones(
    postgres: PostgresAddress, tmp_path: Path, copy: Path
) -> None:
    await record_runs(postgres, "r1")
    with closing(open_connection(postgres, create=False)) as connection:
        for host in (socket.gethostname(), "elsewhere"):
            connection.execute(
                "INSERT INTO worktree_of_host (host, path, repository, branch, base, run, git_dir, is_new_branch,"
                " state, created, size) VALUES (?, '/w', '/r', 'f', 'b', 'r1', '', 1, 'ready', 1.5, 0)",
                (host,),
            )
    export_store(postgres, copy, is_skipping_running=False)

    report = import_store(tmp_path / "t.db", copy)

    assert report.foreign_worktrees == 1
    assert len(await Ledger(tmp_path / "t.db").list_worktrees()) == 1


async def test_an_archive_has_one_run_with_its_files(address: StoreAddress, copy: Path, tmp_path: Path) -> None:
    await fill_store(address)

    archive_run(address, "c1", copy)
    import_store(tmp_path / "t.db", copy)

    with StoreReader(address) as before, StoreReader(tmp_path / "t.db") as after:
        assert after.list_run_ids() == ["c1"]
        assert after.read_rows("c1") == before.read_rows("c1")
        [digest] = [row.values[0] for row in read_store_file(copy) if row.table == "artifact"]
        assert after.read_artifact(digest) == b"the plan"
