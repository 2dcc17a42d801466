from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from podium.core.timeline import Timeline
from podium.store.sqlite.group_rows import Groups
from podium.store.sqlite.reader import StoreReader
from podium.store.sqlite.schema import APPLICATION, MIGRATIONS
from podium.store.sqlite.store import SqliteStore
from podium.values.agent import Agent, Member, Team
from podium.values.errors import Mistake, NoSuchRun, StoreCorrupt
from podium.values.event import RunEnded, RunStarted
from podium.values.request import Request
from podium.views.groups import Arrangement, GroupedRun, GroupKey, build_sections

SQUAD = Agent(name="squad", team=Team(mode="broadcast", members=(Member(agent="one"),)))
ALONE = Agent(name="alone")


async def begin(path: Path, *runs: str, repo: Path | str = "", agent: Agent = ALONE, is_over: bool = True) -> None:
    """Runs as they begin, and end where they are said to."""
    async with SqliteStore(path) as store:
        for run in runs:
            timeline = Timeline(run, store.begin_run(run))
            started = RunStarted(agent=agent.name, request=Request(text="do it"), agents=(agent,), repo=str(repo))
            timeline.append(started, scope="")
            if is_over:
                timeline.append(RunEnded(outcome="succeeded"), scope="")
            await timeline.wait_written()


def arranged(path: Path) -> Arrangement:
    with Groups(path) as groups:
        return groups.load_arrangement()


def homes(path: Path) -> dict[str, GroupKey | None]:
    """Where each run is listed."""
    now = arranged(path)
    return {run: None if (group := now.group_of(run)) is None else group.home for run in now.grouped_runs}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


async def test_runs_are_listed_by_team_by_repository_or_in_the_default_group(path: Path) -> None:
    await begin(path, "aa")
    await begin(path, "bb", repo="/shop/app")
    await begin(path, "cc", repo="/shop/app", agent=SQUAD)
    await begin(path, "dd", agent=SQUAD)

    assert homes(path) == {
        "aa": GroupKey("default"),
        "bb": GroupKey("repo", "/shop/app"),
        "cc": GroupKey("team", "/shop/app", "squad"),
        "dd": GroupKey("team", "", "squad"),
    }


async def test_an_agent_that_reflects_alone_is_no_team(path: Path) -> None:
    alone = Agent(name="alone", team=Team(mode="reflect", members=()))
    await begin(path, "aa", agent=alone)
    await begin(path, "bb", repo="/shop/app", agent=alone)

    assert homes(path) == {"aa": GroupKey("default"), "bb": GroupKey("repo", "/shop/app")}


def git(repo: Path, *words: str) -> None:
    named = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    subprocess.run(["git", "-C", str(repo), *named, *words], check=True, capture_output=True)


async def test_a_worktree_counts_to_its_repository_also_when_it_is_gone(path: Path, tmp_path: Path) -> None:
    repo, elsewhere, beside = tmp_path / "app", tmp_path / "x" / "elsewhere", tmp_path / "app-worker-fix"
    repo.mkdir()
    git(repo, "init", "-q")
    git(repo, "commit", "-q", "--allow-empty", "-m", "first")
    for worktree in (elsewhere, beside):
        git(repo, "worktree", "add", "-q", "--detach", str(worktree))
    await begin(path, "aa", repo=elsewhere)
    await begin(path, "bb", repo=beside)
    await begin(path, "cc", repo=elsewhere, agent=SQUAD)
    await begin(path, "dd", repo=tmp_path / "app-worker-gone")
    await begin(path, "ee", repo=tmp_path / "other-worker-gone")

    assert homes(path) == {
        "aa": GroupKey("repo", str(repo)),
        "bb": GroupKey("repo", str(repo)),
        "cc": GroupKey("team", str(repo), "squad"),
        "dd": GroupKey("repo", str(repo)),
        "ee": GroupKey("repo", str(tmp_path / "other-worker-gone")),
    }


def pipe(mark: Path) -> None:
    os.mkfifo(mark)


def binary(mark: Path) -> None:
    mark.write_bytes(b"gitdir: \xff\xfe/.git/worktrees/x")


def huge(mark: Path) -> None:
    mark.write_text("gitdir: " + "x" * 1_000_000, encoding="utf-8")


def loop(mark: Path) -> None:
    mark.symlink_to(mark)


@pytest.mark.parametrize("made", [pipe, binary, huge, loop])
async def test_a_mark_that_makes_no_sense_hinders_no_list(
    path: Path, tmp_path: Path, made: Callable[[Path], None]
) -> None:
    repo = tmp_path / "app"
    repo.mkdir()
    made(repo / ".git")
    await begin(path, "aa", repo=repo)

    assert homes(path) == {"aa": GroupKey("repo", str(repo))}


async def test_looking_again_changes_nothing(path: Path) -> None:
    await begin(path, "aa", "bb", repo="/shop/app")
    first = arranged(path)

    assert arranged(path) == first


async def test_what_the_person_did_is_there_for_the_next_process(path: Path) -> None:
    await begin(path, "aa", "bb", "cc", repo="/shop/app")
    await begin(path, "dd")
    with Groups(path) as groups:
        now = groups.load_arrangement()
        groups.rename(now.find_group("app"), "The App")
        groups.pin(now.find_group("app"), is_pinned=True)
        groups.rename(now.find_run("aa"), "first")
        groups.archive(now.find_run("bb"), is_archived=True)
        groups.move(now.find_run("dd"), now.find_group("app"))
        groups.order_runs(now.find_group("app"), [groups.load_arrangement().find_run("dd"), now.find_run("aa")])

    now = arranged(path)

    [app, default] = build_sections(["dd", "cc", "bb", "aa"], now)
    assert (app.group.name, app.group.is_pinned, app.runs) == ("The App", True, ["dd", "aa", "cc", "bb"])
    assert default.runs == []
    assert now.grouped_runs["aa"].name == "first"
    assert [run for run in now.grouped_runs if now.is_archived(run)] == ["bb"]


async def test_names_come_back_and_orders_are_forgotten(path: Path) -> None:
    await begin(path, "aa", "bb", repo="/shop/app")
    with Groups(path) as groups:
        app = groups.load_arrangement().find_group("app")
        groups.rename(app, "Something")
        groups.order_runs(app, [groups.load_arrangement().find_run("aa")])
        groups.order_groups([app])

        assert groups.rename(app, None) == "app"
        groups.order_runs(app, ())
        groups.order_groups(())

        now = groups.load_arrangement()

    assert {group.position for group in now.groups.values()} == {None}
    assert {placement.position for placement in now.grouped_runs.values()} == {None}


async def test_runs_of_a_team_cannot_be_moved_nor_others_to_them(path: Path) -> None:
    await begin(path, "aa", repo="/shop/app")
    await begin(path, "bb", repo="/shop/app", agent=SQUAD)
    before = homes(path)

    with Groups(path) as groups:
        now = groups.load_arrangement()
        with pytest.raises(Mistake, match="the team's runs and no others"):
            groups.move(now.find_run("bb"), now.find_group("default"))
        with pytest.raises(Mistake, match="the team's runs and no others"):
            groups.move(now.find_run("aa"), now.find_group("squad"))

    assert homes(path) == before


async def test_runs_of_several_groups_have_no_common_order(path: Path) -> None:
    await begin(path, "aa", repo="/shop/app")
    await begin(path, "bb")
    with Groups(path) as groups:
        now = groups.load_arrangement()

        with pytest.raises(Mistake, match="run bb is not in"):
            groups.order_runs(now.find_group("app"), [now.find_run("aa"), now.find_run("bb")])


async def test_the_runs_of_a_deleted_group_go_to_the_default_one_and_stay_there(path: Path) -> None:
    await begin(path, "aa", "bb", repo="/shop/app")
    with Groups(path) as groups:
        groups.archive(groups.load_arrangement().find_run("aa"), is_archived=True)
        assert groups.delete(groups.load_arrangement().find_group("app")) == []

    assert homes(path) == {"aa": GroupKey("default"), "bb": GroupKey("default")}
    assert arranged(path).is_archived("aa")

    await begin(path, "cc", repo="/shop/app")
    assert homes(path) == {"aa": GroupKey("default"), "bb": GroupKey("default"), "cc": GroupKey("repo", "/shop/app")}


async def test_the_default_group_stays(path: Path) -> None:
    await begin(path, "aa")

    with Groups(path) as groups, pytest.raises(Mistake, match="stays"):
        groups.delete(groups.load_arrangement().find_group("default"))

    connection = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError, match="the default group stays"):
        connection.execute("DELETE FROM run_group")
    connection.close()


async def test_a_teams_group_is_deleted_only_after_all_its_runs_have_ended(path: Path) -> None:
    await begin(path, "aa", agent=SQUAD)
    await begin(path, "bb", agent=SQUAD, is_over=False)

    with Groups(path) as groups:
        unfinished = groups.delete(groups.load_arrangement().find_group("squad"))

    assert unfinished == ["bb"]
    assert homes(path) == {"aa": GroupKey("team", "", "squad"), "bb": GroupKey("team", "", "squad")}


async def test_a_run_that_began_after_the_last_look_must_end_too(path: Path) -> None:
    await begin(path, "aa", agent=SQUAD)
    with Groups(path) as groups:
        squad = groups.load_arrangement().find_group("squad")
        await begin(path, "bb", agent=SQUAD, is_over=False)

        assert groups.delete(squad) == ["bb"]


async def test_runs_and_ids_of_a_deleted_team_never_come_back_but_timelines_stay(path: Path) -> None:
    await begin(path, "aa", agent=SQUAD)
    with Groups(path) as groups:
        squad = groups.load_arrangement().find_group("squad")
        groups.delete(squad)
        with pytest.raises(Mistake, match="was deleted meanwhile"):
            groups.pin(squad, is_pinned=True)
    await begin(path, "bb", agent=SQUAD)

    now = arranged(path)

    assert now.find_group("squad").id > squad.id
    assert now.grouped_runs["aa"] == GroupedRun(run="aa", group=None)
    with pytest.raises(NoSuchRun, match="deleted with its group"):
        now.find_run("aa")
    with StoreReader(path) as reader:
        assert len(reader.read_rows("aa")) == 2


LOOK = """
import pathlib, sys
from podium.store.sqlite.group_rows import Groups

with Groups(pathlib.Path(sys.argv[1])) as groups:
    print("ready", flush=True)
    sys.stdin.readline()
    groups.load_arrangement()
"""


async def test_several_processes_that_look_at_once_make_one_arrangement(path: Path) -> None:
    await begin(path, *(f"a{number:03}" for number in range(200)), repo="/shop/app")
    await begin(path, *(f"b{number:03}" for number in range(200)), repo="/shop/app", agent=SQUAD)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", LOOK, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
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
    now = arranged(path)
    assert sorted(group.home for group in now.groups.values()) == [
        GroupKey("default"),
        GroupKey("repo", "/shop/app"),
        GroupKey("team", "/shop/app", "squad"),
    ]
    assert len(now.grouped_runs) == 400


DIE = """
import os, pathlib, sys
from podium.store.sqlite.group_rows import Groups

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
async def test_a_process_that_dies_between_two_statements_leaves_all_or_nothing(path: Path, act: str) -> None:
    await begin(path, "aa", "bb", agent=SQUAD)
    if act == "delete":
        arranged(path)
    before = raw(path)

    for statement in range(1, 100):
        died = subprocess.run([sys.executable, "-c", DIE, str(path), str(statement), act], check=False)
        if died.returncode == 0:
            break
        assert died.returncode == 9
        assert raw(path) == before

    assert statement > 5
    assert raw(path) != before
    assert set(homes(path).values()) == ({GroupKey("team", "", "squad")} if act == "look" else {None})


def raw(path: Path) -> list[tuple[object, ...]]:
    """All that is kept about groups, as it is kept."""
    connection = sqlite3.connect(path)
    found = [row for table in ("run_group", "placement") for row in connection.execute(f"SELECT * FROM {table}")]
    connection.close()
    return found


async def test_a_store_of_the_first_version_gets_its_groups(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(MIGRATIONS[0])
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute("PRAGMA user_version = 1")
    connection.execute("INSERT INTO run VALUES ('aa', 1.0, NULL, 1)")
    line = (Path(__file__).parents[1] / "samples" / "timeline-1.jsonl").read_bytes().splitlines()[0]
    connection.execute("INSERT INTO entry VALUES ('aa', 1, 1, 'run_started', '', ?, x'00')", (line,))
    connection.commit()
    connection.close()

    now = arranged(path)

    assert now.group_of("aa") is not None
    with StoreReader(path) as reader:
        assert [run.id for run in reader.list_runs()] == ["aa"]
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA user_version").fetchone() == (len(MIGRATIONS),)
    connection.close()


async def test_a_store_that_takes_no_change_is_listed_all_the_same(path: Path) -> None:
    await begin(path, "aa", repo="/shop/app")
    with Groups(path) as groups:
        groups._connection.execute("PRAGMA query_only = ON")

        now = groups.load_arrangement()

    group = now.group_of("aa")
    assert group is not None
    assert group.home == GroupKey("repo", "/shop/app")
    assert [row for row in raw(path) if "aa" in row] == []


async def test_a_beginning_that_cannot_be_read_is_damage(path: Path) -> None:
    await begin(path, "aa")
    connection = sqlite3.connect(path)
    connection.execute("DROP TRIGGER entry_stays")
    connection.execute("UPDATE entry SET line = x'00'")
    connection.commit()
    connection.close()

    with Groups(path) as groups, pytest.raises(StoreCorrupt):
        groups.load_arrangement()
