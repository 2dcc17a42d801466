from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from podium.core.timeline import Timeline
from podium.store.group_rows import Groups
from podium.store.reader import StoreReader
from podium.store.run_store import RunStore
from podium.store.sqlite.schema import APPLICATION, MIGRATIONS
from podium.store.store_connection import open_connection
from podium.store.worker_index import WorkerIndex, build_worker_insert
from podium.testing import make_repository
from podium.testing import run_git as git
from podium.values.agent import Agent, Member, Team
from podium.values.errors import Mistake, NoSuchRun
from podium.values.event import RunEnded, RunStarted
from podium.values.request import Request
from podium.values.store_address import StoreAddress
from podium.values.worker_task import WorkerTask
from podium.views.run_groups import Arrangement, GroupedRun, GroupKey, build_sections

SQUAD = Agent(name="squad", team=Team(mode="broadcast", members=(Member(agent="one"),)))
ALONE = Agent(name="alone")


async def record_runs(
    path: StoreAddress, *runs: str, repo: Path | str = "", agent: Agent = ALONE, is_over: bool = True, parent: str = ""
) -> None:
    """Record runs that start, and that end if the test says so."""
    async with RunStore(path) as store:
        for run in runs:
            task = WorkerTask(root=str(repo), path=str(repo), branch=run, parent=parent) if parent else None
            timeline = Timeline(run, store.begin_run(run, None if task is None else build_worker_insert(run, task)))
            started = RunStarted(
                agent=agent.name, request=Request(text="do it"), agents=(agent,), repo=str(repo), errand=task
            )
            timeline.append(started, scope="")
            if is_over:
                timeline.append(RunEnded(outcome="succeeded"), scope="")
            await timeline.wait_written()


def load_arrangement(path: StoreAddress) -> Arrangement:
    with Groups(path) as groups:
        return groups.load_arrangement()


def read_group_keys(path: StoreAddress) -> dict[str, GroupKey | None]:
    """Return the group under which each run is listed."""
    now = load_arrangement(path)
    return {run: None if (group := now.group_of(run)) is None else group.home for run in now.grouped_runs}


@pytest.fixture
def path(address: StoreAddress) -> StoreAddress:
    return address


@pytest.fixture
def sqlite_path(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


async def test_runs_are_listed_by_team_by_repository_or_in_the_default_group(path: StoreAddress) -> None:
    await record_runs(path, "aa")
    await record_runs(path, "bb", repo="/shop/app")
    await record_runs(path, "cc", repo="/shop/app", agent=SQUAD)
    await record_runs(path, "dd", agent=SQUAD)

    assert read_group_keys(path) == {
        "aa": GroupKey("default"),
        "bb": GroupKey("repo", "/shop/app"),
        "cc": GroupKey("team", "/shop/app", "squad"),
        "dd": GroupKey("team", "", "squad"),
    }


async def test_workers_of_a_team_are_listed_with_it(path: StoreAddress) -> None:
    await record_runs(path, "aa", repo="/shop/app", agent=SQUAD)
    await record_runs(path, "bb", repo="/shop/app-worker-bb", parent="aa")
    await record_runs(path, "cc", repo="/shop/app-worker-cc", parent="bb")
    await record_runs(path, "dd", repo="/shop/app", parent="gone")

    team = GroupKey("team", "/shop/app", "squad")
    assert read_group_keys(path) == {"aa": team, "bb": team, "cc": team, "dd": GroupKey("repo", "/shop/app")}


async def test_workers_that_were_deleted_with_their_team_are_in_no_list(path: StoreAddress) -> None:
    await record_runs(path, "aa", repo="/shop/app", agent=SQUAD)
    await record_runs(path, "bb", repo="/shop/app", parent="aa")
    await record_runs(path, "cc", repo="/shop/app", parent="gone")
    with Groups(path) as groups:
        groups.delete(groups.load_arrangement().find_group("squad"))

    assert read_group_keys(path) == {"aa": None, "bb": None, "cc": GroupKey("repo", "/shop/app")}
    assert [row.run for row in WorkerIndex(path).list_listed("/shop/app")] == ["cc"]
    assert [row.run for row in WorkerIndex(path).list_listed()] == ["cc"]


async def test_an_agent_that_reflects_alone_is_no_team(path: StoreAddress) -> None:
    alone = Agent(name="alone", team=Team(mode="reflect", members=()))
    await record_runs(path, "aa", agent=alone)
    await record_runs(path, "bb", repo="/shop/app", agent=alone)

    assert read_group_keys(path) == {"aa": GroupKey("default"), "bb": GroupKey("repo", "/shop/app")}


async def test_a_worktree_counts_to_its_repository_also_when_it_is_gone(path: StoreAddress, tmp_path: Path) -> None:
    repo, elsewhere, beside = tmp_path / "app", tmp_path / "x" / "elsewhere", tmp_path / "app-worker-fix"
    make_repository(repo, {})
    for worktree in (elsewhere, beside):
        git(repo, "worktree", "add", "-q", "--detach", str(worktree))
    await record_runs(path, "aa", repo=elsewhere)
    await record_runs(path, "bb", repo=beside)
    await record_runs(path, "cc", repo=elsewhere, agent=SQUAD)
    await record_runs(path, "dd", repo=tmp_path / "app-worker-gone")
    await record_runs(path, "ee", repo=tmp_path / "other-worker-gone")

    assert read_group_keys(path) == {
        "aa": GroupKey("repo", str(repo)),
        "bb": GroupKey("repo", str(repo)),
        "cc": GroupKey("team", str(repo), "squad"),
        "dd": GroupKey("repo", str(repo)),
        "ee": GroupKey("repo", str(tmp_path / "other-worker-gone")),
    }


def make_pipe(git_file: Path) -> None:
    os.mkfifo(git_file)


def write_binary_file(git_file: Path) -> None:
    git_file.write_bytes(b"gitdir: \xff\xfe/.git/worktrees/x")


def write_huge_file(git_file: Path) -> None:
    git_file.write_text("gitdir: " + "x" * 1_000_000, encoding="utf-8")


def make_link_loop(git_file: Path) -> None:
    git_file.symlink_to(git_file)


@pytest.mark.parametrize("made", [make_pipe, write_binary_file, write_huge_file, make_link_loop])
async def test_an_invalid_git_file_does_not_prevent_listing(
    path: StoreAddress, tmp_path: Path, made: Callable[[Path], None]
) -> None:
    repo = tmp_path / "app"
    repo.mkdir()
    made(repo / ".git")
    await record_runs(path, "aa", repo=repo)

    assert read_group_keys(path) == {"aa": GroupKey("repo", str(repo))}


async def test_looking_again_changes_nothing(path: StoreAddress) -> None:
    await record_runs(path, "aa", "bb", repo="/shop/app")
    first = load_arrangement(path)

    assert load_arrangement(path) == first


async def test_changes_of_the_person_are_visible_to_the_next_process(path: StoreAddress) -> None:
    await record_runs(path, "aa", "bb", "cc", repo="/shop/app")
    await record_runs(path, "dd")
    with Groups(path) as groups:
        now = groups.load_arrangement()
        groups.rename(now.find_group("app"), "The App")
        groups.pin(now.find_group("app"), is_pinned=True)
        groups.rename(now.get_listed_run("aa"), "first")
        groups.archive(now.get_listed_run("bb"), is_archived=True)
        groups.move(now.get_listed_run("dd"), now.find_group("app"))
        groups.order_runs(
            now.find_group("app"), [groups.load_arrangement().get_listed_run("dd"), now.get_listed_run("aa")]
        )

    now = load_arrangement(path)

    [app, default] = build_sections(["dd", "cc", "bb", "aa"], now)
    assert (app.group.name, app.group.is_pinned, app.runs) == ("The App", True, ["dd", "aa", "cc", "bb"])
    assert default.runs == []
    assert now.grouped_runs["aa"].name == "first"
    assert [run for run in now.grouped_runs if now.is_archived(run)] == ["bb"]


async def test_names_come_back_and_orders_are_forgotten(path: StoreAddress) -> None:
    await record_runs(path, "aa", "bb", repo="/shop/app")
    with Groups(path) as groups:
        app = groups.load_arrangement().find_group("app")
        groups.rename(app, "Something")
        groups.order_runs(app, [groups.load_arrangement().get_listed_run("aa")])
        groups.order_groups([app])

        assert groups.rename(app, None) == "app"
        groups.order_runs(app, ())
        groups.order_groups(())

        now = groups.load_arrangement()

    assert {group.position for group in now.groups.values()} == {None}
    assert {grouped_run.position for grouped_run in now.grouped_runs.values()} == {None}


async def test_runs_of_a_team_cannot_be_moved_nor_others_to_them(path: StoreAddress) -> None:
    await record_runs(path, "aa", repo="/shop/app")
    await record_runs(path, "bb", repo="/shop/app", agent=SQUAD)
    before = read_group_keys(path)

    with Groups(path) as groups:
        now = groups.load_arrangement()
        with pytest.raises(Mistake, match="into or out of a team's group"):
            groups.move(now.get_listed_run("bb"), now.find_group("default"))
        with pytest.raises(Mistake, match="into or out of a team's group"):
            groups.move(now.get_listed_run("aa"), now.find_group("squad"))

    assert read_group_keys(path) == before


async def test_runs_of_several_groups_have_no_common_order(path: StoreAddress) -> None:
    await record_runs(path, "aa", repo="/shop/app")
    await record_runs(path, "bb")
    with Groups(path) as groups:
        now = groups.load_arrangement()

        with pytest.raises(Mistake, match="run bb is not in"):
            groups.order_runs(now.find_group("app"), [now.get_listed_run("aa"), now.get_listed_run("bb")])


async def test_the_runs_of_a_deleted_group_go_to_the_default_one_and_stay_there(path: StoreAddress) -> None:
    await record_runs(path, "aa", "bb", repo="/shop/app")
    with Groups(path) as groups:
        groups.archive(groups.load_arrangement().get_listed_run("aa"), is_archived=True)
        assert groups.delete(groups.load_arrangement().find_group("app")) == []

    assert read_group_keys(path) == {"aa": GroupKey("default"), "bb": GroupKey("default")}
    assert load_arrangement(path).is_archived("aa")

    await record_runs(path, "cc", repo="/shop/app")
    assert read_group_keys(path) == {
        "aa": GroupKey("default"),
        "bb": GroupKey("default"),
        "cc": GroupKey("repo", "/shop/app"),
    }


async def test_the_default_group_stays(sqlite_path: Path) -> None:
    await record_runs(sqlite_path, "aa")

    with Groups(sqlite_path) as groups, pytest.raises(Mistake, match="cannot be deleted"):
        groups.delete(groups.load_arrangement().find_group("default"))

    connection = sqlite3.connect(sqlite_path)
    with pytest.raises(sqlite3.IntegrityError, match="the default group stays"):
        connection.execute("DELETE FROM run_group")
    connection.close()


async def test_a_teams_group_is_deleted_only_after_all_its_runs_have_ended(path: StoreAddress) -> None:
    await record_runs(path, "aa", agent=SQUAD)
    await record_runs(path, "bb", agent=SQUAD, is_over=False)

    with Groups(path) as groups:
        unfinished = groups.delete(groups.load_arrangement().find_group("squad"))

    assert unfinished == ["bb"]
    assert read_group_keys(path) == {"aa": GroupKey("team", "", "squad"), "bb": GroupKey("team", "", "squad")}


async def test_a_run_that_began_after_the_last_look_must_end_too(path: StoreAddress) -> None:
    await record_runs(path, "aa", agent=SQUAD)
    with Groups(path) as groups:
        squad = groups.load_arrangement().find_group("squad")
        await record_runs(path, "bb", agent=SQUAD, is_over=False)

        assert groups.delete(squad) == ["bb"]


async def test_runs_and_ids_of_a_deleted_team_never_come_back_but_timelines_stay(path: StoreAddress) -> None:
    await record_runs(path, "aa", agent=SQUAD)
    with Groups(path) as groups:
        squad = groups.load_arrangement().find_group("squad")
        groups.delete(squad)
        with pytest.raises(Mistake, match="has been deleted"):
            groups.pin(squad, is_pinned=True)
    await record_runs(path, "bb", agent=SQUAD)

    now = load_arrangement(path)

    assert now.find_group("squad").id > squad.id
    assert now.grouped_runs["aa"] == GroupedRun(run="aa", group=None)
    with pytest.raises(NoSuchRun, match="because its group was deleted"):
        now.get_listed_run("aa")
    with StoreReader(path) as reader:
        assert len(reader.read_rows("aa")) == 2


LOOK = """
import pathlib, sys
from podium.store.group_rows import Groups
from podium.values.store_address import PostgresAddress

with Groups(pathlib.Path(sys.argv[1]) if len(sys.argv) == 2 else PostgresAddress(*sys.argv[1:])) as groups:
    print("ready", flush=True)
    sys.stdin.readline()
    groups.load_arrangement()
"""


async def test_several_processes_that_look_at_once_make_one_arrangement(path: StoreAddress) -> None:
    await record_runs(path, *(f"a{number:03}" for number in range(200)), repo="/shop/app")
    await record_runs(path, *(f"b{number:03}" for number in range(200)), repo="/shop/app", agent=SQUAD)
    arguments = [str(path)] if isinstance(path, Path) else [path.url, str(path.folder)]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", LOOK, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"

    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        process.communicate()

    assert [process.returncode for process in processes] == [0] * 4
    now = load_arrangement(path)
    assert sorted(group.home for group in now.groups.values()) == [
        GroupKey("default"),
        GroupKey("repo", "/shop/app"),
        GroupKey("team", "/shop/app", "squad"),
    ]
    assert len(now.grouped_runs) == 400


DIE = """
import os, pathlib, sys
from podium.store.group_rows import Groups

left = int(sys.argv[2])

def die(statement):
    global left
    left -= 1
    if left == 0:
        os._exit(9)

with Groups(pathlib.Path(sys.argv[1])) as groups:
    squad = None if sys.argv[3] == "look" else groups.load_arrangement().find_group("squad")
    groups._connection.set_trace_callback(die)
    groups.load_arrangement() if squad is None else groups.delete(squad)
"""


@pytest.mark.parametrize("act", ["look", "delete"])
async def test_a_process_that_dies_between_two_statements_leaves_all_or_nothing(sqlite_path: Path, act: str) -> None:
    await record_runs(sqlite_path, "aa", "bb", agent=SQUAD)
    if act == "delete":
        load_arrangement(sqlite_path)
    before = read_raw_rows(sqlite_path)

    for statement in range(1, 100):
        died = subprocess.run([sys.executable, "-c", DIE, str(sqlite_path), str(statement), act], check=False)
        if died.returncode == 0:
            break
        assert died.returncode == 9
        assert read_raw_rows(sqlite_path) == before

    assert statement > 5
    assert read_raw_rows(sqlite_path) != before
    assert set(read_group_keys(sqlite_path).values()) == ({GroupKey("team", "", "squad")} if act == "look" else {None})


def read_raw_rows(path: StoreAddress) -> list[tuple[object, ...]]:
    """Return all stored rows about groups, unprocessed."""
    with closing(open_connection(path, create=False)) as connection:
        return [row for table in ("run_group", "placement") for row in connection.execute(f"SELECT * FROM {table}")]


async def test_a_store_of_the_first_version_gets_its_groups(sqlite_path: Path) -> None:
    connection = sqlite3.connect(sqlite_path)
    connection.executescript(MIGRATIONS[0])
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute("PRAGMA user_version = 1")
    connection.execute("INSERT INTO run VALUES ('aa', 1.0, NULL, 1)")
    line = (Path(__file__).parents[1] / "samples" / "timeline-1.jsonl").read_bytes().splitlines()[0]
    connection.execute("INSERT INTO entry VALUES ('aa', 1, 1, 'run_started', '', ?, x'00')", (line,))
    connection.commit()
    connection.close()

    now = load_arrangement(sqlite_path)

    assert now.group_of("aa") is not None
    with StoreReader(sqlite_path) as reader:
        assert [run.id for run in reader.list_runs()] == ["aa"]
    connection = sqlite3.connect(sqlite_path)
    assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
    connection.close()


async def test_a_read_only_store_can_still_be_listed(sqlite_path: Path) -> None:
    await record_runs(sqlite_path, "aa", repo="/shop/app")
    with Groups(sqlite_path) as groups:
        groups._connection.execute("PRAGMA query_only = ON")

        now = groups.load_arrangement()

    group = now.group_of("aa")
    assert group is not None
    assert group.home == GroupKey("repo", "/shop/app")
    assert [row for row in read_raw_rows(sqlite_path) if "aa" in row] == []


async def test_a_run_whose_start_cannot_be_read_gets_no_group_and_the_others_do(sqlite_path: Path) -> None:
    await record_runs(sqlite_path, "aa", "bb")
    connection = sqlite3.connect(sqlite_path)
    connection.execute("DROP TRIGGER entry_stays")
    connection.execute("UPDATE entry SET line = x'00' WHERE run = 'aa'")
    connection.commit()
    connection.close()

    now = load_arrangement(sqlite_path)

    assert "aa" not in now.grouped_runs
    assert now.group_of("bb") is not None


async def test_runs_are_listed_at_once_while_another_process_is_writing(sqlite_path: Path) -> None:
    await record_runs(sqlite_path, "aa")
    other = sqlite3.connect(sqlite_path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    started = time.monotonic()

    now = load_arrangement(sqlite_path)

    assert time.monotonic() - started < 10
    assert now.group_of("aa") is not None
    other.close()


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to mount a read-only file system")
async def test_runs_on_a_read_only_file_system_can_be_listed(sqlite_path: Path, tmp_path: Path) -> None:
    await record_runs(sqlite_path, "aa")
    program = (
        "import pathlib, sys\nfrom podium.store.group_rows import Groups\n"
        "with Groups(pathlib.Path(sys.argv[1])) as groups:\n    print(*groups.load_arrangement().grouped_runs)\n"
    )
    script = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && exec "$2" -c "$3" "$4"'
    arguments = ["sh", str(tmp_path), sys.executable, program, str(sqlite_path)]

    said = subprocess.run(["unshare", "--mount", "sh", "-c", script, *arguments], capture_output=True, text=True)

    assert said.stdout == "aa\n", said.stderr
