"""Targets of several repositories move together or not at all, also if the process is killed between two moves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from podium.values.errors import Mistake
from podium.workspace.merging.joint_move import FOLDER, TargetMove, finish_joint_moves, move_together

from .merging import Repo

pytestmark = pytest.mark.anyio


@pytest.fixture
def repos(tmp_path: Path) -> list[Repo]:
    found = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        repo = Repo(tmp_path / name / "repo")
        repo.branch("work", {f"{name}.txt": f"{name}\n"})
        found.append(repo)
    return found


@pytest.fixture
def moves(repos: list[Repo]) -> list[TargetMove]:
    return [
        TargetMove(
            root=str(repo.path), target="main", old=repo.tip(), new=repo.tip("work"), tree=repo.tree(repo.tip("work"))
        )
        for repo in repos
    ]


def tips(repos: list[Repo]) -> list[str]:
    return [repo.tip() for repo in repos]


def assert_clean(repos: list[Repo], home: Path) -> None:
    assert [repo.git("status", "--short") for repo in repos] == ["", ""]
    assert list((home / FOLDER).glob("*.json")) == []


async def test_all_targets_move_with_their_checkouts(
    repos: list[Repo], moves: list[TargetMove], tmp_path: Path
) -> None:
    await move_together(tmp_path / "home", tmp_path / "home" / "podium.db", moves)

    assert tips(repos) == [move.new for move in moves]
    assert (repos[1].path / "second.txt").read_text() == "second\n"
    assert_clean(repos, tmp_path / "home")


async def test_a_refused_move_is_found_before_the_first_target_moves(
    repos: list[Repo], moves: list[TargetMove], tmp_path: Path
) -> None:
    (repos[1].path / "a.txt").write_text("mine\n")

    with pytest.raises(Mistake, match=rf"no target was moved: in {repos[1].path}, .* uncommitted changes \(a.txt\)"):
        await move_together(tmp_path / "home", tmp_path / "home" / "podium.db", moves)

    assert tips(repos) == [move.old for move in moves]


async def test_if_the_second_move_fails_the_first_is_undone(
    repos: list[Repo], moves: list[TargetMove], tmp_path: Path
) -> None:
    lock = repos[1].path / ".git" / "refs" / "heads" / "main.lock"

    with (
        lock.open("x"),
        pytest.raises(Mistake, match="the merge was undone in all repositories: main could not be moved"),
    ):
        await move_together(tmp_path / "home", tmp_path / "home" / "podium.db", moves)

    (repos[1].path / ".git" / "refs" / "heads" / "main.lock").unlink()
    assert tips(repos) == [move.old for move in moves]
    assert_clean(repos, tmp_path / "home")


def move_and_die(home: Path, moves: list[TargetMove], after: int) -> None:
    """Move the targets in another process that is killed after this many recorded transitions."""
    program = (
        "import sys, anyio, msgspec; from functools import partial; from pathlib import Path;"
        "from podium.values.actor import Actor;"
        "from podium.workspace.merging.joint_move import TargetMove, move_together;"
        "home = Path(sys.argv[1]); moves = msgspec.json.decode(sys.argv[2], type=list[TargetMove]);"
        "anyio.run(partial(move_together, by=Actor(name='ada', channel='page')), home, home / 'podium.db', moves)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(home), msgspec.json.encode(moves).decode()],
        env={**os.environ, "PODIUM_FAULT": str(after)},
    )
    assert done.returncode == 137


@pytest.mark.parametrize("after", [1, 2, 3])
async def test_an_interrupted_move_is_completed(
    repos: list[Repo], moves: list[TargetMove], tmp_path: Path, after: int
) -> None:
    home = tmp_path / "home"
    move_and_die(home, moves, after)
    assert [tip == move.new for tip, move in zip(tips(repos), moves, strict=True)] == [after > 1, after > 2]

    said = await finish_joint_moves(home, home / "podium.db")

    assert said == [f"an interrupted merge into main in {repos[0].path} and main in {repos[1].path} was completed"]
    assert tips(repos) == [move.new for move in moves]
    approved = ["podium: fast-forward by ada (page)"] * 2
    assert [repo.git("reflog", "-1", "--format=%gs", "main") for repo in repos] == approved
    assert_clean(repos, home)
    assert await finish_joint_moves(home, home / "podium.db") == []


async def test_an_interrupted_move_is_undone_if_another_target_has_moved_since(
    repos: list[Repo], moves: list[TargetMove], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    move_and_die(home, moves, 2)
    newer = repos[1].commit({"newer.txt": "newer\n"})

    [said] = await finish_joint_moves(home, home / "podium.db")

    assert said.startswith("an interrupted merge was undone, because it could not be completed: main was at ")
    assert tips(repos) == [moves[0].old, newer]
    assert_clean(repos, home)


async def test_what_can_be_neither_completed_nor_undone_is_said_until_a_person_has_merged_it(
    repos: list[Repo], moves: list[TargetMove], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    move_and_die(home, moves, 2)
    repos[0].commit({"after.txt": "after\n"})
    repos[1].commit({"newer.txt": "newer\n"})

    [said] = await finish_joint_moves(home, home / "podium.db")
    repos[1].git("merge", "-q", "--no-edit", "work")
    [again] = await finish_joint_moves(home, home / "podium.db")

    assert "could be neither completed (main was at " in said
    assert f"main in {repos[0].path} has moved to {moves[0].new[:12]} and could not be moved back" in said
    assert again == f"an interrupted merge into main in {repos[0].path} and main in {repos[1].path} was completed"
    assert_clean(repos, home)


async def test_files_that_were_updated_before_their_branch_moved_are_put_back(
    repos: list[Repo], moves: list[TargetMove], tmp_path: Path
) -> None:
    home = tmp_path / "home"
    move_and_die(home, moves, 1)
    repos[0].git("read-tree", "-m", "-u", moves[0].old, moves[0].new)  # as far as a killed fast-forward may come
    newer = repos[1].commit({"newer.txt": "newer\n"})

    await finish_joint_moves(home, home / "podium.db")

    assert tips(repos) == [moves[0].old, newer]
    assert_clean(repos, home)
